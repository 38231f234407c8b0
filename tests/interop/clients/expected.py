"""The answers that `tools` must give, computed from its contract (docs/protocols/streaming-tools.md)."""

TOOLS = ["bulk", "chatty", "connect", "countdown", "delete", "long_output", "progress", "rename", "stuck", "summarise", "survey", "whoami"]
READ_ONLY = ["chatty", "long_output", "whoami"]

CHATTY = [
    "first block: short",
    "second block: a slightly longer string with multiple words",
    "third block: numbers 1 2 3 4 5",
    "fourth block: unicode; café résumé naïve",
]

STEPS = {
    "gather": "Gathering information and context",
    "analyze": "Analyzing data and patterns",
    "synthesize": "Synthesizing insights",
    "validate": "Validating conclusions",
    "format": "Formatting final report",
}


def long_output(blocks, chars):
    """Block i is its header padded to `chars` bytes with `abcdefghij` repeating; a longer header is cut."""
    texts = []
    for i in range(blocks):
        header = f"[block {i}] "
        pad = "abcdefghij" * (chars // 10 + 1)
        texts.append((header + pad)[:chars])
    return texts


def countdown(start):
    """(value, total, message) of each update."""
    messages = [f"Counting down: {left}" for left in range(start, 0, -1)] + ["Countdown complete! 🎉"]
    return [(value, start, message) for value, message in enumerate(messages)]


def workflow_updates():
    return [(i, 5, f"Step {i}/5: {description}") for i, description in enumerate(STEPS.values(), 1)]


def workflow(topic):
    """The prompt that the workflow returns: (description, text of its one message)."""
    steps = "\n".join(f"✓ {name} - {description}" for name, description in STEPS.items())
    text = f"Analysis Workflow Complete\n\nTopic: {topic}\n\nSteps:\n{steps}\n\nReady for review."
    return f"Multi-step analysis workflow for: {topic}", text
