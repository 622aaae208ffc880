"""``python -m arbitrag`` is the command ``arbitrag``."""

import sys

from arbitrag.cli import main

sys.exit(main())
