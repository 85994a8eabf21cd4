"""Values: a function's arguments and its result, as JSON text and back, by its annotations.

    value_codec    one annotation: encodes, decodes, and makes sure that nothing changed on the way
    annotation_check   which annotations can be carried
    custom_types   types that msgspec does not carry by itself: pydantic models, paths, addresses
    sameness       whether a decoded value is what was encoded, type by type
    signature      a function's parameters: binds a call, encodes it, decodes it

Nothing here knows the mesh or the log. What a value may be is in docs/reference/values.md.
"""
