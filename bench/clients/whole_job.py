"""Runs a command and prints, as JSON, its seconds and the CPU seconds of all processes that it started.

`python whole_job.py COMMAND…` ends when all of them have ended, also those that the command did not wait for.
"""

import ctypes
import json
import os
import resource
import subprocess
import sys
import time

_PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    # Processes whose parent has ended become children of this one.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    started = time.perf_counter()
    status = subprocess.run(sys.argv[1:], env={**os.environ, "SPARK_JOB_OF_BENCH": "1"}, check=False).returncode
    seconds = time.perf_counter() - started
    try:
        while True:
            os.wait()
    except ChildProcessError:
        pass
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({"seconds": seconds, "cpu": usage.ru_utime + usage.ru_stime}), flush=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
