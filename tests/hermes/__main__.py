"""`python -m tests.hermes`: install each version of Hermes Agent that tests use, all at once, before any test's time runs."""

from concurrent.futures import ThreadPoolExecutor

from tests.hermes.launcher import VERSIONS, installed

with ThreadPoolExecutor() as threads:
    list(threads.map(installed, VERSIONS))
