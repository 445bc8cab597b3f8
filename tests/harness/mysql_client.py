"""Stands in for the `mysql` client where none is installed: statements from --execute or standard input, rows out."""

from __future__ import annotations

import argparse
import os
import re
import sys

import pymysql


def statements(script: str) -> list[str]:
    """Split at semicolons that end a line, or at any where there is one line only; line comments are left out."""
    script = re.sub(r"^\s*--.*$", "", script, flags=re.MULTILINE)
    end = r";\s*$" if "\n" in script.strip() else r";"
    return [one.strip() for one in re.split(end, script, flags=re.MULTILINE) if one.strip()]


def main() -> int:
    parser = argparse.ArgumentParser(prog="mysql", add_help=False)
    parser.add_argument("-h", "--host", default=os.environ.get("MYSQL_HOST", "127.0.0.1"))
    parser.add_argument("-P", "--port", type=int, default=int(os.environ.get("MYSQL_TCP_PORT", "3306")))
    parser.add_argument("-u", "--user", default="root")
    parser.add_argument("-p", "--ask", action="store_true")
    parser.add_argument("-e", "--execute")
    parser.add_argument("database", nargs="?")
    options = parser.parse_args()
    connection = pymysql.connect(
        host=options.host,
        port=options.port,
        user=options.user,
        password=os.environ.get("MYSQL_PWD", "").encode(),
        database=options.database,
        charset="utf8mb4",
    )
    with connection, connection.cursor() as cursor:
        for statement in statements(options.execute or sys.stdin.read()):
            try:
                cursor.execute(statement)
            except pymysql.MySQLError as error:
                sys.stderr.write(f"ERROR {error.args[0]}: {error.args[-1]} in {statement!r}\n")
                return 1
            for row in cursor.fetchall():
                print("\t".join("NULL" if value is None else str(value) for value in row))
        connection.commit()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
