"""The product from outside: processes, databases, sockets and broken lines for the tests that run it for real."""
