"""Packages that are hidden while another one is imported."""

import importlib
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from odradek.model.hidden_package import hidden_package


def test_a_package_is_hidden_from_the_imports_of_one_thread_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "this", raising=False)
    monkeypatch.setattr("builtins.print", lambda *_: None)
    with hidden_package("this"), ThreadPoolExecutor(1) as other:
        with pytest.raises(ModuleNotFoundError, match="No module named 'this'"):
            importlib.import_module("this")
        assert other.submit(importlib.import_module, "this").result()
        assert importlib.import_module("this"), "it is imported already"
    monkeypatch.delitem(sys.modules, "this")
    assert importlib.import_module("this")
