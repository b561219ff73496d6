"""The error tree: each class knows its codes, and one function makes the body."""

import pytest

from hermes_site import errors


def classes(kind: type[errors.GatewayError] = errors.GatewayError) -> list[type[errors.GatewayError]]:
    """All classes of the tree but the base; those that an app adds are its own to test."""
    own = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
    return [found for child in own for found in (child, *classes(child))]


@pytest.mark.parametrize("kind", classes())
def test_every_error_has_codes_of_the_agreed_lists(kind: type[errors.GatewayError]) -> None:
    """Seven codes on the wire; five more over HTTP; a status that fits the type."""
    error = kind("text")
    http = errors.WIRE_CODES | {
        "unauthorized",
        "forbidden",
        "not_found",
        "method_not_allowed",
        "invalid_request",
    }
    assert error.code in http
    assert error.wire_code in errors.WIRE_CODES
    assert (error.status >= 500) == (error.type == "server_error")
    assert set(errors.body(error)["error"]) == {"code", "type", "message"}


def test_a_body_says_what_the_error_knows() -> None:
    """The field, further keys, and the code of the door."""
    error = errors.Conflict("busy", field="id", api_code="run_already_active", extra={"run_id": "run_1"})
    assert errors.body(error, api=True) == {
        "error": {
            "code": "run_already_active",
            "type": "conflict_error",
            "message": "busy",
            "param": "id",
            "run_id": "run_1",
        }
    }
    assert errors.body(error)["error"]["code"] == "invalid_request"
    assert errors.Conflict.api_code == "conflict", "an instance's own code is not the class's"


def test_close_codes_are_those_that_the_server_software_can_send() -> None:
    """1000 and 3000 to 4999, each number once."""
    assert all(code == 1000 or 3000 <= code <= 4999 for code in errors.CloseCode)
    assert len({int(code) for code in errors.CloseCode}) == len(errors.CloseCode.__members__)
