"""The config of a benchmark: every mistake is one sentence with file and key, before any work; the published ones are fine."""

from pathlib import Path

import pytest

from flipproof.errors import InputError
from flipproof.studies.benchmark_config import read_protocols

ROOT = Path(__file__).parents[2]
GOOD = "[[row]]\ndefence = 'voting'\nsettings = [{ groups = 3 }]\n[[data]]\nname = 'topologies:40'\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "row is needed, and not there"),
        ("row = []\ndata = [{ name = 'MUTAG' }]", "row must have at least 1 item"),
        (GOOD + "nam = 1\n", "data[0].nam is not a key of a benchmark (did you mean name?)"),
        ("folds = [10]\n" + GOOD, "folds[0] must be less than 10; got 10"),
        ("attacked = -1\n" + GOOD, "attacked must be greater than or equal to 0; got -1"),
        ("limit = 1\n" + GOOD, "limit must be a valid boolean; got 1"),
        (GOOD + "training = 3\n", "data[0].training must be a valid dictionary; got 3"),
        ("training = { epoch = 3 }\n" + GOOD, "training: epoch is not a training setting (did you mean epochs?)"),
        ("training = { epochs = 0 }\n" + GOOD, "training: epochs must be"),
        (GOOD.replace("'voting'", "'voted'"), "row[0]: defence must be one of smoothing, voting, local"),
        (
            GOOD.replace("groups = 3", "group = 3"),
            "row[0]: settings: group is no setting of voting (did you mean groups?)",
        ),
        (
            GOOD.replace("[[data]]", "certify = { deep = 1 }\n[[data]]"),
            "row[0]: certify.deep is nothing that voting takes",
        ),
        (GOOD.replace("[[data]]", "certify = { depth = -1 }\n[[data]]"), "row voting: certify: depth must be"),
        ("[[row]]\ndefence = 'local'\nname = 'voting'\n" + GOOD, "row voting: name 'voting' is there twice"),
        (
            GOOD.replace("[[data]]", "readings = { counts = 'GNNCert' }\n[[data]]"),
            "row voting: readings: counts is no other certificate of voting (known: voting, counts alone)",
        ),
        (
            GOOD.replace("groups = 3", "groups = 3, renumber = 9"),
            "row[0]: settings: renumber is no setting of voting (known: ",
        ),
        (
            GOOD.replace("[[data]]", "data = ['topologies:41']\n[[data]]"),
            "row[0].data: there is no data set topologies:41 (did you mean topologies:40?)",
        ),
        ("x = [", "is not a TOML file"),
    ],
)
def test_a_mistake_is_one_sentence_with_file_and_key(text, words, tmp_path):
    path = tmp_path / "b.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_protocols(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_keys_of_a_data_set_take_precedence_and_tables_are_merged(tmp_path):
    path = tmp_path / "b.toml"
    path.write_text(
        "folds = [0]\ntraining = { epochs = 3, copies = 1 }\n" + GOOD + "training = { epochs = 5 }\nfolds = [4]\n"
    )
    (protocol,) = read_protocols(path)
    assert (protocol.training, protocol.folds) == ({"epochs": 5, "copies": 1}, [4])
    assert [row.name for row in protocol.rows] == ["edge-blind", "voting"]  # the line is always there


def test_rows_of_one_data_set_only(tmp_path):
    path = tmp_path / "b.toml"
    path.write_text(
        "[[row]]\nname = 'v'\ndefence = 'voting'\ndata = ['MUTAG']\nsettings = [{ groups = 9 }]\n"
        + GOOD
        + "[[data]]\nname = 'MUTAG'\n"
    )
    protocol, other = read_protocols(path)
    assert [row.name for row in protocol.rows] == ["edge-blind", "voting"]
    assert [row.name for row in other.rows] == ["edge-blind", "v", "voting"]


def test_the_published_config_has_all_rows_for_all_nine_data_sets():
    protocols = read_protocols(ROOT / "benchmarks" / "full.toml", root="data")
    assert len(protocols) == 9
    for protocol in protocols:
        assert [name for row in protocol.rows for name in row.names] == [
            "edge-blind",
            "no defence, exhaustive r = 1",
            "priced voting",
            "GNNCert",
            "smoothing, influence",
            "smoothing, votes",
            "smoothing, paper",
            "local",
            *(
                ["local, for 5 flips", "local, for 8 flips"]
                if protocol.title in ("topologies", "IMDB-BINARY", "IMDB-MULTI")
                else []
            ),
        ]
        assert len(protocol.folds) == 10
        assert (ROOT / "benchmarks" / "splits" / f"{protocol.title}.json").is_file()
        epochs = {{**protocol.training, **row.training}["epochs"] for row in protocol.rows}
        assert len(epochs) == 1  # the same budget for every defence
