"""The command `gputop-monitor`: runs gputop, which the same package installed."""

import os
import sys
from typing import NoReturn

from .program import GputopNotFound, program_path


def main() -> NoReturn:
    try:
        program = program_path()
    except GputopNotFound as error:
        sys.exit("gputop-monitor: %s" % error)
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
