"""What front ends may send as input: anything is an input or a refusal, and what is one can be kept and sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chat import inputs, pictures
from hermes_site.errors import InvalidRequest, TooLarge

URLS = [
    "https://a.example/x.png",
    "/media/med_1",
    "data:image/png;base64,AAAA",
    "file:///x",
    "//x",
    "http://[",
    "data:text/html,x",
]
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from(["a\x00", "\ud800", *URLS]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
parts = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["text", "input_text", "image_url", "input_image", "file"]) | anything,
        "text": anything,
        "image_url": anything | st.fixed_dictionaries({"url": anything, "detail": anything}),
        "role": st.sampled_from(["user", "assistant"]) | anything,
        "content": anything,
    },
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "input": anything | st.lists(parts | anything, max_size=4),
        "message": anything,
        "instructions": anything,
        "system_message": anything,
    },
)


@given(bodies)
@settings(max_examples=400, deadline=None)
@example({"input": [{"type": {}, "text": "x"}]})
@example({"input": [{"type": ["text"], "text": "x"}]})
@example({"input": [{"role": {}, "content": "x"}]})
@example({"input": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,\ud800"}}]})
@example({"input": [{"type": "image_url", "image_url": "data:image/png;base64,é"}]})
@example({"input": "x" * 200})
def test_any_body_is_an_input_or_refused(body: dict[str, Any]) -> None:
    """By one of the codes of the contract, never by an exception of ours."""
    try:
        said = inputs.read_input(body, 100)
        instructions = inputs.read_instructions(body, 100)
        if said is not None:
            pictures.read_bytes(said.images)
    except (InvalidRequest, TooLarge) as error:
        assert error.field in ("input", "instructions")
        assert error.api_code != InvalidRequest.api_code
        return
    assert instructions is None or inputs.storable(instructions)
    if said is None:
        assert body.get("input") is None and body.get("message") is None
        return
    assert said.text.strip() or said.images
    assert inputs.storable(said.text)
    json.dumps(said.content, ensure_ascii=False).encode()


def test_the_last_user_entry_of_a_list_of_messages_counts() -> None:
    """As the adapter sends a whole conversation."""
    said = inputs.read_input(
        {
            "input": [
                {"role": "user", "content": "one"},
                {"role": "user", "content": "two"},
                {"role": "assistant", "content": "x"},
            ]
        },
        100,
    )
    assert said == inputs.Input("two", [], "two")


def test_parts_are_kept_in_one_form() -> None:
    """Whatever their spelling."""
    said = inputs.read_input(
        {"input": ["a", {"type": "input_text", "text": "b"}, {"type": "input_image", "image_url": URLS[0]}]},
        100,
    )
    assert said == inputs.Input(
        "a\nb",
        [URLS[0]],
        [
            {"type": "text", "text": "a"},
            {"type": "text", "text": "b"},
            {"type": "image_url", "image_url": {"url": URLS[0]}},
        ],
    )


@pytest.mark.parametrize(
    ("url", "good"), list(zip(URLS, [True, True, True, False, False, False, False], strict=True))
)
def test_images_have_an_address_or_are_data(url: str, good: bool) -> None:
    """Nothing is looked up here."""
    body = {"input": [{"type": "image_url", "image_url": {"url": url}}]}
    if good:
        said = inputs.read_input(body, 100)
        assert said is not None and said.images == [url]
        return
    with pytest.raises(InvalidRequest):
        inputs.read_input(body, 100)
