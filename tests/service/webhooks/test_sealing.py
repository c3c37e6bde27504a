"""Secrets are stored encrypted where there is a key, and no key that is missing or changed loses one."""

import base64
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner, Result

from sutler.service.cli.app import app
from sutler.service.settings import SettingsError, service_settings
from sutler.service.webhooks.sealing import SealedError, Sealer
from tests.adapters.server import Reply, ScriptedServer
from tests.service.webhooks.api import Api
from tests.service.webhooks.builders import SECRET, is_signed
from tests.service.webhooks.office import Office

OLD, NEW = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))


def a_sealer(*keys: str) -> Sealer:
    return Sealer(service_settings({"SUTLER_SECRETS_KEYS": ",".join(keys)}).secrets_keys)


def stored(office: Office) -> str:
    """All secrets of the store."""
    return str(office.rows("SELECT secret, former_secrets FROM webhook"))


def key_id(key: str) -> str:
    found = a_sealer(key).key_id
    assert found is not None
    return found


@pytest.fixture
def command(api: Api, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`sutler db encrypt-secrets` with these keys."""

    def run(*keys: str) -> Result:
        monkeypatch.setenv("SUTLER_SECRETS_KEYS", ",".join(keys))
        return CliRunner().invoke(app, ["db", "encrypt-secrets"], catch_exceptions=False)

    return run


def test_what_is_sealed_is_opened_by_its_key_for_its_webhook_alone() -> None:
    webhook_id, sealer = uuid4(), a_sealer(OLD)
    sealed = sealer.sealed(SECRET, webhook_id)
    assert SECRET not in sealed
    assert sealed != sealer.sealed(SECRET, webhook_id)
    assert sealer.opened(sealed, webhook_id) == SECRET
    assert a_sealer(NEW, OLD).opened(sealed, webhook_id) == SECRET
    with pytest.raises(SealedError, match="not as it was stored"):
        sealer.opened(sealed, uuid4())
    for others in ((), (NEW,)):
        with pytest.raises(SealedError, match=f"with the key {key_id(OLD)}, which SUTLER_SECRETS_KEYS here does not"):
            a_sealer(*others).opened(sealed, webhook_id)


def test_a_stored_secret_that_has_changed_is_noticed() -> None:
    webhook_id, sealer = uuid4(), a_sealer(OLD)
    name, of_key, content = sealer.sealed(SECRET, webhook_id).split(":")
    raw = bytearray(base64.b64decode(content))
    for at in range(0, len(raw), 7):
        changed = bytes([*raw[:at], raw[at] ^ 1, *raw[at + 1 :]])
        with pytest.raises(SealedError):
            sealer.opened(":".join((name, of_key, base64.b64encode(changed).decode())), webhook_id)


def test_what_was_sealed_by_nobody_is_no_crash() -> None:
    for stored in (
        "aes-256-gcm:",
        f"aes-256-gcm:{key_id(OLD)}",
        f"aes-256-gcm:{key_id(OLD)}:ü",
        "aes-256-gcm:x:AAAA",
    ):
        with pytest.raises(SealedError):
            a_sealer(OLD).opened(stored, uuid4())


def test_without_a_key_secrets_are_stored_as_they_are() -> None:
    assert a_sealer().sealed(SECRET, uuid4()) == SECRET
    assert a_sealer(NEW).opened(SECRET, uuid4()) == SECRET


@pytest.mark.parametrize("given", ["hunter2", base64.b64encode(b"x" * 16).decode(), f"{OLD},hunter2", "ü"])
def test_what_is_no_key_is_refused_and_not_shown(given: str) -> None:
    with pytest.raises(SettingsError, match="openssl rand -base64 32") as refused:
        service_settings({"SUTLER_SECRETS_KEYS": given})
    assert given not in str(refused.value)
    assert OLD not in repr(service_settings({"SUTLER_SECRETS_KEYS": OLD}))


def test_with_a_key_new_and_rotated_secrets_are_encrypted_and_sign(
    office: Office, empty_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUTLER_DATABASE_URL", empty_store.database_url)
    monkeypatch.setenv("SUTLER_OUTGOING_NETWORKS", "127.0.0.0/8")
    monkeypatch.setenv("SUTLER_SECRETS_KEYS", OLD)
    with Api(office) as api, ScriptedServer([Reply(204)]) as receiver:
        made = api.made(url=receiver.base_url).json()
        new = api.ask("POST", f"/{made['id']}/rotate-secret", json={}).json()
        assert "whsec_" not in stored(office)
        assert stored(office).count(f"aes-256-gcm:{key_id(OLD)}:") == 2
        assert "secrets" not in api.probe()
        office.sealer = a_sealer(NEW, OLD)
        office.delivered(*office.announced())
    (request,) = receiver.requests
    assert [is_signed(request, one["secret"]) for one in (made, new)] == [True, True]


def test_a_delivery_without_the_key_waits_and_says_what_to_do(api: Api, office: Office) -> None:
    with ScriptedServer([Reply(204)]) as receiver:
        office.sealer = a_sealer(OLD)
        webhook = office.registered(receiver.base_url)
        office.sealer = a_sealer(NEW)
        (delivery_id,) = office.announced()
        office.delivered(delivery_id)
        found = office.delivery(delivery_id)
        assert (found.status, found.attempts, len(office.jobs())) == ("pending", 1, 1)
        assert f"encrypted with the key {key_id(OLD)}" in str(found.last_error)
        assert "add that key" in str(found.last_error)
        assert f"encrypted with the key {key_id(OLD)}" in api.probe()["secrets"]
        office.sealer = a_sealer(NEW, OLD)
        office.delivered(delivery_id)
        assert office.delivery(delivery_id).status == "delivered"
    assert is_signed(receiver.requests[0])
    assert webhook.id == office.deliveries(webhook)[0].webhook_id


def test_plain_secrets_and_those_of_another_key_are_encrypted_with_the_first(
    api: Api, office: Office, command: Any
) -> None:
    with ScriptedServer([Reply(204)]) as receiver:
        webhook = office.registered(receiver.base_url)
        api.ask("POST", f"/{webhook.id}/rotate-secret", json={})
        done = command(OLD)
        assert (done.exit_code, "The secrets of 1 webhook are" in done.stdout) == (0, True), done.output
        assert ("whsec_" in stored(office), stored(office).count(key_id(OLD))) == (False, 2)
        assert command(NEW, OLD).exit_code == 0
        assert (stored(office).count(key_id(OLD)), stored(office).count(key_id(NEW))) == (0, 2)
        noted = [line[2:] for line in office.audit() if line[1] == "webhook.encrypt_secrets"]
        assert noted == [(f"key/{key_id(one)}", {"webhooks": 1}) for one in (OLD, NEW)]
        office.sealer = a_sealer(NEW)
        office.delivered(*office.announced())
    assert is_signed(receiver.requests[0])


def test_what_signs_no_longer_needs_no_key(api: Api, office: Office, command: Any) -> None:
    office.sealer = a_sealer(OLD)
    webhook = office.registered()
    api.ask("POST", f"/{webhook.id}/rotate-secret", json={})
    assert command(NEW).exit_code == 2
    office.execute(
        "UPDATE webhook SET former_secrets = jsonb_set(former_secrets, '{0,until}', to_jsonb(now() - interval '1 s'))"
    )
    assert command(NEW).exit_code == 0
    assert (stored(office).count(key_id(OLD)), stored(office).count(key_id(NEW))) == (0, 1)


def test_a_secret_whose_key_is_lost_is_replaced_as_the_remedy_says(api: Api, office: Office) -> None:
    with ScriptedServer([Reply(204)]) as receiver:
        office.sealer = a_sealer(OLD)
        webhook = office.registered(receiver.base_url)
        office.sealer = a_sealer(NEW)
        (delivery_id,) = office.announced()
        office.delivered(delivery_id)
        assert "overlap_s of 0" in str(office.delivery(delivery_id).last_error)
        new = api.ask("POST", f"/{webhook.id}/rotate-secret", json={"overlap_s": 0}).json()
        office.delivered(delivery_id)
        assert office.delivery(delivery_id).status == "delivered"
    assert is_signed(receiver.requests[0], new["secret"])


def test_where_one_cannot_be_read_none_is_changed(office: Office, command: Any) -> None:
    office.registered()
    office.sealer = a_sealer(OLD)
    lost = [office.registered() for _ in range(3)]
    before = stored(office)
    done = command(NEW)
    assert done.exit_code == 2
    assert f"webhook {min(str(one.id) for one in lost)}: the secret is encrypted with the key" in done.stderr
    assert stored(office) == before


def test_there_has_to_be_a_key_to_encrypt_with(command: Any) -> None:
    done = command()
    assert (done.exit_code, "set SUTLER_SECRETS_KEYS" in done.stderr) == (2, True)


def test_a_backup_holds_them_encrypted(office: Office, command: Any, tmp_path: Path) -> None:
    office.registered()
    command(OLD)
    file = tmp_path / "a.backup"
    assert CliRunner().invoke(app, ["backup", str(file)], catch_exceptions=False).exit_code == 0
    from zipfile import ZipFile

    with ZipFile(file) as archive:
        assert not [name for name in archive.namelist() if b"whsec_" in archive.read(name)]
