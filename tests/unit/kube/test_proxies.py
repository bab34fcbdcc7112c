"""Which proxy a client uses: that of the environment, but not for servers that are exempt."""

from __future__ import annotations

import pytest

from admission.kube.client import proxy_of

PROXY = "http://proxy.example.com:3128"


@pytest.mark.parametrize(
    ("server", "environment", "want"),
    [
        pytest.param("https://kube.example.com:6443", {"https_proxy": PROXY}, PROXY, id="its scheme has a proxy"),
        pytest.param("https://kube.example.com", {"http_proxy": PROXY}, None, id="another scheme has one"),
        pytest.param(
            "https://10.0.0.1", {"https_proxy": PROXY, "no_proxy": "10.0.0.1"}, None, id="the server is exempt"
        ),
        pytest.param("https://kube.example.com", {}, None, id="there is none"),
        pytest.param("", {"https_proxy": PROXY}, None, id="there is no server"),
    ],
)
def test_proxy(monkeypatch: pytest.MonkeyPatch, server: str, environment: dict[str, str], want: str | None) -> None:
    for scheme in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{scheme}_proxy", raising=False)
        monkeypatch.delenv(f"{scheme}_proxy".upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert proxy_of(server) == want
