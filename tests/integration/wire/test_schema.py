import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_schema_modules_are_what_the_generator_writes() -> None:
    script = ROOT / "scripts" / "generate_schema.py"
    run = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (0, ""), run.stderr


def test_messages_are_read_and_written_without_heavy_imports() -> None:
    code = (
        "import sys, ottla.wire.messages as m;"
        "m.response_parts(3, 12, 1, m.message(3, request=False).root());"
        "heavy = {'kio', 'numpy', 'numba', 'pyarrow', 'asyncio', 'ssl'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
