"""A page's policy: nothing is asked of other hosts, whatever gets into a page."""

import pytest
from bs4 import BeautifulSoup
from specdec_site.policy import restrict

ATTACKS = {
    "img-src": "new Image().src = 'http://127.0.0.1:9/stolen';",
    "connect-src": "fetch('http://127.0.0.1:9/stolen').catch(() => {});",
    "script-src": "const s = document.createElement('script'); s.src = 'http://127.0.0.1:9/x.js';"
    " document.head.append(s);",
    "form-action": "const f = document.createElement('form'); f.action = 'http://127.0.0.1:9/';"
    " document.body.append(f); f.submit();",
    "base-uri": "const b = document.createElement('base'); b.href = 'http://127.0.0.1:9/';"
    " document.head.append(b);",
    "frame": "const f = document.createElement('iframe'); f.src = 'http://127.0.0.1:9/';"
    " document.body.append(f);",
}
HEAD = "<html><head><meta charset='utf-8'><title>x</title></head><body></body></html>"


def restricted() -> str:
    """Return an empty page with the policy."""
    soup = BeautifulSoup(HEAD, "html.parser")
    restrict(soup)
    return str(soup)


@pytest.mark.browser
@pytest.mark.parametrize("directive", ATTACKS)
def test_no_way_leads_to_another_host(chromium, directive: str):
    page = chromium.new_page()
    page.set_content(restricted())
    refused = page.evaluate(
        """(attack) => new Promise((resolve) => {
        addEventListener('securitypolicyviolation', (event) => resolve(event.effectiveDirective));
        setTimeout(() => resolve('nothing was refused'), 10000);
        const s = document.createElement('script'); s.textContent = attack;
        document.head.append(s); })""",
        ATTACKS[directive],
    )  # Playwright's wait_for_function evaluates a string, which the policy refuses too
    assert refused.startswith(directive)
    page.close()


@pytest.mark.browser
@pytest.mark.parametrize("name", ["preface", "live", "05_draft_then_verify", "16_gpu_timing"])
def test_a_page_works_under_its_policy(new_page, server: str, name: str):
    """Whatever the policy refuses is an error in the console, which fails the test."""
    folder = "notebooks" if name[0].isdigit() else "book"
    page = new_page((server,), bypass_csp=False)
    page.goto(f"{server}{folder}/{name}.html")
    page.wait_for_selector(".sdl-interactive:not([data-mounted])", state="detached")
    assert page.locator(".sdl-interactive").count() > 0
