"""What a person types as an answer or an address, and what is made of it."""

from types import SimpleNamespace

import pytest

from antiphon.errors import Misconfigured
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.http_options import http_address
from antiphon.interfaces.cli.shared.answer_form import read_value


@pytest.mark.parametrize(
    "schema, text, value",
    [
        (None, "3", "3"),
        ({"type": "string"}, "3", "3"),
        ({"type": "integer"}, "3", 3),
        ({"type": "object"}, '{"days": 3}', {"days": 3}),
    ],
)
def test_an_answer_is_text_unless_its_question_has_another_schema(schema, text, value):
    assert read_value(SimpleNamespace(schema=schema), text) == value


def test_an_answer_that_is_no_json_is_refused_where_json_is_asked_for():
    with pytest.raises(WrongUsage):
        read_value(SimpleNamespace(schema={"type": "object"}), "three days")


def address(typed, configured=None, *, exposed=False):
    options = SimpleNamespace(http=typed, http_exposed=exposed)
    return http_address(options, SimpleNamespace(http_address=configured))


def test_http_is_served_where_it_was_typed_or_configured_and_else_nowhere():
    assert address("") is None
    assert str(address("127.0.0.1:7464")) == "127.0.0.1:7464"
    assert str(address("", "127.0.0.1:1234")) == "127.0.0.1:1234"
    with pytest.raises(WrongUsage, match="--http nonsense"):
        address("nonsense")


def test_other_machines_reach_http_only_if_that_was_typed_too():
    with pytest.raises(Misconfigured, match="other machines could reach"):
        address("0.0.0.0:7464")
    assert address("0.0.0.0:7464", exposed=True) is not None
