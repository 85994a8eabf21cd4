"""Evidence of model calls (spec §12). Whether a completion has it is judged by `families.jobs`.

    snapshot         the snapshot of one call, and its published schema
    exchange         one HTTP exchange, as it was captured
    call_reader      an exchange becomes a snapshot
    call_parts       what the readers of APIs have in common
    openai_calls     calls in the shapes of OpenAI's API
    anthropic_calls  calls in the shape of Anthropic's API
    event_stream     answers that come as server-sent events

Nothing here decides a verdict.
"""
