"""Every handler takes the parts of a broker; mypy proves, where metrics do, that a broker has them all."""

import importlib
import inspect

import pytest

from odradek.broker.apis import APIS
from odradek.broker.interfaces import BrokerParts
from odradek.broker.observing.observation import observe
from odradek.broker.serving.dispatch import HANDLERS


@pytest.mark.parametrize("module", [each.module for each in APIS.values()])
def test_a_handler_takes_the_parts_of_a_broker(module: str):
    parameters = inspect.signature(importlib.import_module(f"{HANDLERS}.{module}").handle).parameters
    assert parameters["broker"].annotation is BrokerParts


def test_metrics_take_the_parts_of_a_broker():
    assert inspect.signature(observe).parameters["broker"].annotation is BrokerParts
