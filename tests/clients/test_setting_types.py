"""The types of settings are those of the keys; `tests/typing` has calls that type checkers accept and refuse."""

import inspect
from typing import get_type_hints

import pytest

from odradek.clients import setting_types
from odradek.config.definition import definitions
from tests.clients.setting_types import CLASSES, PATH, config_name, text


@pytest.mark.needs("ruff")
def test_the_types_of_settings_are_those_of_the_keys() -> None:
    assert text() == PATH.read_text(), "the keys have changed: run `python tests/clients/setting_types.py`"


@pytest.mark.parametrize("settings", CLASSES)
def test_a_client_takes_each_of_its_keys_as_a_parameter_or_as_a_typed_setting(settings: type) -> None:
    parameters = inspect.signature(CLASSES[settings]).parameters
    typed = get_type_hints(getattr(setting_types, config_name(settings)))
    assert parameters["settings"].annotation.__args__ == (getattr(setting_types, config_name(settings)),)
    assert not typed.keys() & parameters.keys()
    keys = {each.attribute for each in definitions(settings).values()}
    assert keys - {"bootstrap_servers"} <= typed.keys() | parameters.keys()
