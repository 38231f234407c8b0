"""Named scenarios: their declaration, the checks that they can make, and the output for each of them."""

import sys
import traceback

declared = []


class Unmet(Exception):
    """A check that failed. Its text has the expected and the actual value."""


def scenario(sentence):
    def declare(body):
        declared.append((sentence, body))
        return body

    return declare


def run(execute):
    """Runs every scenario through `execute`, and prints a line with its outcome. The exit status is 0 if all were run, even if some have failed."""
    for sentence, body in declared:
        try:
            execute(body)
        except Exception as error:
            cause = innermost(error)
            if not isinstance(cause, Unmet):
                traceback.print_exception(cause)
            print(f"FAILED {sentence}: {explain(cause)}", flush=True)
        else:
            print(f"ok {sentence}", flush=True)
    sys.exit(0)


def innermost(error):
    """Returns the first error within nested exception groups, in which task groups wrap the errors of their tasks."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def explain(error):
    text = str(error) if isinstance(error, Unmet) else f"{type(error).__name__} {error}"
    return " ".join(text.split())


def equal(what, came, expected):
    if came != expected:
        raise Unmet(f"{what}: expected {short(expected)}, came {short(came)}")


def same_bytes(what, came, expected):
    """Compares long texts. The error shows the place of the first difference."""
    came, expected = came.encode(), expected.encode()
    if came != expected:
        at = next((i for i, pair in enumerate(zip(came, expected)) if pair[0] != pair[1]), min(len(came), len(expected)))
        raise Unmet(
            f"{what}: expected {len(expected)} bytes with {expected[at : at + 20]} at {at}, came {len(came)} with {came[at : at + 20]} there"
        )


def within(what, came, low, high):
    if not low <= came <= high:
        raise Unmet(f"{what}: expected {low} to {high}, came {came:.3f}")


def contains(what, came, part):
    if str(part).lower() not in str(came).lower():
        raise Unmet(f"{what}: expected {part!r} in it, came {short(came)}")


def holds(what, fine):
    if not fine:
        raise Unmet(what)


def short(value, limit=400):
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit // 2]} [..] {text[-limit // 2 :]}"
