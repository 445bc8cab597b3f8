# The private Python environment that demo, example, test and services share. Sourced by them, never run.
#
# find_python          sets `python`: the private environment's when there is one, else any Python 3.11 or later
# private_environment  makes the environment or brings it up to date, and sets `python` to its interpreter
#
# It lies in .venv; where the repository cannot be written to, in the user's cache folder.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [[ -w $repository ]]; then
    environment=$repository/.venv
else
    environment=${XDG_CACHE_HOME:-$HOME/.cache}/cdc-outbox/venv
fi

say() {
    printf '%s\n' "$*" >&2
}

_recent_enough() {
    "$1" -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    local candidate
    for candidate in "$environment/bin/python" python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null && _recent_enough "$candidate"; then
            python=$(command -v "$candidate")
            return
        fi
    done
    say "Python 3.11 or later is needed, and none was found on PATH."
    say "Install it: sudo apt-get install python3 python3-venv (Debian 12, Ubuntu 24.04 or later); brew install python (macOS)."
    exit 2
}

private_environment() {
    local stamp=$environment/cdc-outbox.stamp wanted
    # The compiled decoder is made anew with its source.
    wanted="$repository $(cat "$repository/pyproject.toml" "$repository"/cdc_outbox/binlog/*.c | cksum)"
    if [[ -f $stamp && $(<"$stamp") == "$wanted" ]] && _recent_enough "$environment/bin/python"; then
        python=$environment/bin/python
        return
    fi
    find_python
    if ! _recent_enough "$environment/bin/python" || ! "$environment/bin/python" -m pip --version >/dev/null 2>&1; then
        if [[ -f $stamp ]]; then
            rm -rf "$environment" # ours, and of a Python that is gone
        fi
        say "Making a private Python environment in $environment"
        if ! "$python" -m venv "$environment" >&2; then
            say
            say "$python cannot make a virtual environment; the reason is above."
            say "On Debian and Ubuntu its venv module is a package of its own: sudo apt-get install python3-venv"
            exit 2
        fi
    fi
    python=$environment/bin/python
    say "Installing cdc-outbox and what it needs into $environment (a minute, the first time)"
    if ! "$python" -m pip install --quiet --disable-pip-version-check --editable "$repository[dev]" >&2; then
        say
        say "The installation failed; pip's reason is above. Run this again when it is put right."
        exit 2
    fi
    "$python" - <<'END' >&2
from cdc_outbox.binlog.accelerator import decoder
if decoder().kind == "pure":
    print(f"The binlog is read in pure Python, the same but slower: {decoder().why}")
END
    printf '%s' "$wanted" >"$stamp"
}
