"""The list of public drafters follows from the files of the families."""

import drafter_names

STUB = drafter_names.STUB.read_text(encoding="utf-8")


def test_the_list_is_todays():
    assert drafter_names.updated(STUB) == STUB, "run: python site/drafter_names.py"


def test_a_new_file_is_enough_for_a_public_name(tmp_path, monkeypatch):
    monkeypatch.setattr(drafter_names, "DRAFTERS", tmp_path)
    source = "class EchoDrafter:\n    pass\n\n\nclass EchoSession:\n    pass\n"
    (tmp_path / "echo.py").write_text(source, encoding="utf-8")
    stub = drafter_names.updated(STUB)
    assert "from specdec_lite.drafters.echo import EchoDrafter\n" in stub
    assert '    "EchoDrafter",\n' in stub and "EchoSession" not in stub
    assert "draft_chain" in stub and "JacobiDrafter" not in stub, "its file is not in this folder"
