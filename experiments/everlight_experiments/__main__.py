"""Entry point of the command `everlight` and of `python -m everlight_experiments`."""

from everlight_experiments.common.compilation import compile_faster, keep_compiled_programs
from everlight_experiments.common.devices import one_device_a_core


def main() -> None:
    """Run the command line with the compiler's and the devices' settings for experiments."""
    compile_faster()
    keep_compiled_programs()
    one_device_a_core()
    from everlight_experiments.cli import main as run

    run()


if __name__ == "__main__":
    main()
