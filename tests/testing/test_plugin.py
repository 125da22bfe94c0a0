"""The plugin that pytest loads in every session wherever Odradek is installed."""

import subprocess
import sys


def test_the_plugin_imports_no_broker_until_a_test_uses_the_fixture():
    program = (
        "import sys; before = set(sys.modules); import odradek.testing.pytest_plugin;"
        "print(*(name for name in set(sys.modules) - before if name.partition('.')[0] in ('kio', 'uvloop', 'numpy')"
        " or name.startswith(('odradek.broker', 'odradek.clients', 'odradek.protocol'))))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == ""
