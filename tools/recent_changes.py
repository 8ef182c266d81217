"""Which files changed recently, for checks that look only at these."""
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
SECONDS = 6 * 3600  # before the newest commit


def output(*command):
    """The standard output of git; "" if it cannot say."""
    done = subprocess.run(("git", "-C", str(ROOT), *command), stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False)
    return done.stdout


def changed_recently():
    """Files changed in the six hours before the newest commit, or not committed yet; None if git
    cannot say."""
    newest = output("log", "-1", "--format=%ct").strip()
    if not newest:
        return None
    # Moves, and changes of includes alone, are none.
    listed = (output("log", f"--since=@{int(newest) - SECONDS}", "--name-only", "--format=", "-M",
                     "-G", "^([^#]|#[^i]|#i[^n])")
              + output("diff", "--name-only", "HEAD")
              + output("ls-files", "--others", "--exclude-standard"))
    return {ROOT / name for name in listed.splitlines()}
