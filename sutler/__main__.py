"""`python -m sutler`: the command."""

from sutler.service.cli.main import run

if __name__ == "__main__":
    run()
