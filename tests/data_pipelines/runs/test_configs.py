"""config.json of a run: what it holds, and which differences of settings it refuses."""

import json
import subprocess

import pytest

from everlight_data.errors import DataError, MissingDataError
from everlight_data.runs import configs
from everlight_data.runs.configs import file_state, read_any_config, read_config, write_config
from everlight_data.runs.descriptions import json_checksum
from tests.refusals import refused

SETTINGS = {"runs": "a", "seeds": 3, "config": {"rate": 0.1, "chosen": "On validation."}}


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"
    write_config(path, SETTINGS, {"methods": {"EWC": 1}, "settings": {}})
    return path


def test_settings_replace_those_before_and_all_else_is_kept(config):
    content = read_config(config, SETTINGS)
    assert content["settings"] == SETTINGS
    assert content["methods"] == {"EWC": 1}
    before = file_state(config)
    write_config(config, SETTINGS, content)
    assert file_state(config) != before
    assert read_config(config, SETTINGS) == content


@pytest.mark.parametrize(
    ("change", "free", "texts", "refusal"),
    [
        ({"seeds": 4}, ("seeds",), (), None),
        ({"seeds": 4}, (), (), r"seeds: stored 3, now 4"),
        ({"config": {"rate": 0.1, "chosen": "Otherwise."}}, (), ("chosen",), None),
        ({"config": {"rate": 0.1}}, (), ("chosen",), None),
        ({"config": {"rate": 0.1}}, (), (), r"config\.chosen: stored 'On validation\.', now None"),
        ({"config": {"rate": 0.2}}, (), ("chosen",), r"\(config\.rate: stored 0\.1, now 0\.2\)"),
    ],
)
def test_only_settings_that_decide_are_compared(config, change, free, texts, refusal):
    if refusal is None:
        assert read_config(config, SETTINGS | change, free, texts)["settings"] == SETTINGS
        return
    with pytest.raises(DataError, match=f"other settings .*{refusal}.*--tag"):
        read_config(config, SETTINGS | change, free, texts)


@pytest.mark.parametrize(
    ("stored", "chosen", "is_same"),
    [
        ("images", "./images", True),
        ("images", "{folder}/images", True),
        ("images", "link", True),
        ("images", "others", False),
        ("images", None, False),
        (None, None, True),
    ],
)
def test_spellings_of_one_path_are_equal(config, monkeypatch, tmp_path, stored, chosen, is_same):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "images")
    write_config(config, SETTINGS | {"data": stored}, {})
    settings = SETTINGS | {"data": chosen and chosen.format(folder=tmp_path)}
    if is_same:
        assert read_config(config, settings, paths=("data",))["settings"]["data"] == stored
        return
    with pytest.raises(DataError, match="data: stored 'images', now"):
        read_config(config, settings, paths=("data",))


def test_the_commit_is_that_of_the_repository_that_tracks_the_code(config, monkeypatch, tmp_path):
    """A virtual environment may lie in a repository of the user."""

    def git(*words):
        command = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path), *words)
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def stored_commit():
        write_config(config, SETTINGS, {})
        return json.loads(config.read_text())["made_with"]["commit"]

    code = tmp_path / ".venv" / "configs.py"
    code.parent.mkdir()
    code.write_text("")
    (tmp_path / ".gitignore").write_text(".venv\n")
    git("init")
    git("add", ".gitignore")
    git("commit", "-m", "The user's.")
    monkeypatch.setattr(configs, "__file__", str(code))
    assert stored_commit() is None
    git("add", "--force", str(code))
    git("commit", "-m", "The code.")
    assert stored_commit() == git("rev-parse", "HEAD")


def test_methods_of_another_form_are_damage(config):
    """A run adds its methods to them."""
    config.write_text(json.dumps(json.loads(config.read_text()) | {"methods": 5}))
    with pytest.raises(DataError, match=r"config\.json is damaged .*methods are not a mapping"):
        read_config(config, SETTINGS)


def test_a_config_that_is_damaged_or_missing_is_named(config):
    edited = config.read_text().replace('"seeds": 3', '"seeds": 4')
    deep = '{"settings": ' + '{"a": ' * 5_000 + "1" + "}" * 5_001
    for text, reason in ((edited, "checksum differs"), ("[]", ""), (deep, "")):
        config.write_text(text)
        with pytest.raises(DataError, match=rf"config\.json is damaged .*{reason}"):
            read_config(config, SETTINGS)
    config.unlink()
    refused(r"config\.json does not exist", lambda: read_config(config, SETTINGS), MissingDataError)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({}, "KeyError: 'settings'"),
        ([], "TypeError"),
        (None, "TypeError"),
        ({"settings": {"seed": 0}}, "KeyError: 'crc32'"),
        ({"settings": {"seed": 1}, "crc32": json_checksum({"seed": 0})}, "its checksum differs"),
        *(
            (
                {"settings": stored, "crc32": json_checksum(stored)},
                "not a mapping with an integer seed",
            )
            for stored in (None, [1], {"seed": "0"}, {"seed": None}, {"seed": True})
        ),
    ],
)
def test_settings_of_another_form_or_edited_are_damage(config, content, reason):
    config.write_text(json.dumps(content))
    refused(
        rf"config\.json is damaged .*{reason}.*\. Again\.",
        lambda: read_any_config(config, "Again."),
        DataError,
    )
