"""What a Catch2 program's XML report says, also where the program did not get to its end."""

import html
import re

CASE = re.compile(r'<TestCase name="([^"]*)"(.*?)(?=<TestCase name="|\Z)', re.DOTALL)
FAILED_EXPRESSION = re.compile(
    r'((?:<Info>(?:(?!</Info>).)*</Info>\s*)*)<Expression success="false"[^>]*>'
    r".*?<Original>(.*?)</Original>\s*<Expanded>(.*?)</Expanded>",
    re.DOTALL,
)
OTHER_FAILURE = re.compile(r"<(Exception|FatalErrorCondition|Failure)[^>]*>(.*?)</\1>", re.DOTALL)


def clean(text):
    return html.unescape(" ".join(text.split()))


def infos(text):
    return [clean(info) for info in re.findall(r"<Info>(.*?)</Info>", text, re.DOTALL)]


def failures_in(body):
    """One line for each failure of a test case: where it was, and what was compared."""
    lines = []
    for said, original, expanded in FAILED_EXPRESSION.findall(body):
        where = "; ".join(infos(said))
        lines.append((f"{where}: " if where else "") + f"{clean(original)}, which is {clean(expanded)}")
    lines += [f"{kind}: {clean(text)}" for kind, text in OTHER_FAILURE.findall(body)]
    return lines


def read(xml):
    """{"cases": n, "failed": [{"name", "failures": [...]}], "unfinished": the case in which it ended, or None}"""
    failed, unfinished, cases = [], None, 0
    for name, body in CASE.findall(xml):
        cases += 1
        result = re.search(r'<OverallResult success="(true|false)"', body)
        if result is None:
            unfinished = clean(name)
        elif result[1] == "false":
            failed.append({"name": clean(name), "failures": failures_in(body)})
    return {"cases": cases, "failed": failed, "unfinished": unfinished}
