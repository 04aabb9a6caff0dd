"""Files of a split of facts: what is written is read, and so are the authors' files."""

import csv

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from everlight_data.errors import DataError, MissingDataError
from everlight_data.facts.parts.split_files import (
    Fact,
    FactSamples,
    FactSet,
    find_images,
    read_images,
    read_split,
)
from tests.data_pipelines.facts.parts.split_files import write_split

FACTS = (
    Fact("person"),
    Fact("person", "ride", "horse"),
    Fact("traffic light", "on", "post, old"),
    Fact("dog", "jump"),
)
SET = FactSet(
    "made up",
    FACTS,
    FactSamples(("train/a.jpg", "train/b.jpg", "train/a.jpg"), np.array([3, 0, 1])),
    FactSamples(("test/c.jpg",), np.array([2])),
)
TASK = np.array([1, 0, 1, 0])


@pytest.fixture
def split(tmp_path):
    folder = tmp_path / "splits" / "2tasks_random"
    write_split(folder, SET, TASK)
    return folder


def test_the_type_of_a_fact_names_its_defined_pieces():
    assert [fact.type for fact in FACTS] == ["S", "SPO", "SPO", "SP"]


def test_written_files_have_the_authors_names_and_columns(split):
    assert sorted(path.name for path in split.iterdir()) == [
        f"B{task}_{part}.csv" for task in (1, 2) for part in ("facts", "test", "train")
    ]
    with (split / "B2_facts.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["id", "type", "S", "P", "O"],
            ["0", "S", "person", "", ""],
            ["2", "SPO", "traffic light", "on", "post, old"],
        ]
    with (split / "B1_train.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == [
            {"image_links": "train/a.jpg", "id": "3"},
            {"image_links": "train/a.jpg", "id": "1"},
        ]


def test_a_written_split_is_read_back_task_by_task(split):
    facts, task = read_split(split)
    assert facts.name == "2tasks_random"
    assert facts.facts == FACTS
    np.testing.assert_array_equal(task, TASK)
    assert facts.train.images == ("train/a.jpg", "train/a.jpg", "train/b.jpg")
    np.testing.assert_array_equal(facts.train.facts, [3, 1, 0])
    assert facts.test.images == ("test/c.jpg",)
    np.testing.assert_array_equal(facts.test.facts, [2])


WORD = st.text("ab,\"' é", min_size=1, max_size=4).filter(lambda text: text == text.strip(" '"))
PIECES = st.lists(WORD, min_size=1, max_size=3)


@settings(max_examples=40)
@given(
    facts=st.lists(PIECES.map(lambda pieces: Fact(*pieces)), min_size=1, max_size=6, unique=True),
    data=st.data(),
)
def test_any_facts_survive_writing_and_reading(tmp_path_factory, facts, data):
    count = len(facts)
    drawn = np.array(data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)))
    task = np.unique(drawn, return_inverse=True)[1]
    labels = np.array(data.draw(st.lists(st.integers(0, count - 1), max_size=8)), int)
    images = tuple(data.draw(WORD) for _ in labels)
    folder = tmp_path_factory.mktemp("splits")
    samples = FactSamples(images, labels)
    write_split(folder, FactSet("any", tuple(facts), samples, samples), task)
    result, found_task = read_split(folder)
    assert result.facts == tuple(facts)
    np.testing.assert_array_equal(found_task, task)
    order = np.argsort(task[labels], kind="stable")
    np.testing.assert_array_equal(result.test.facts, labels[order])
    assert result.train.images == tuple(images[i] for i in order)


def test_the_authors_own_files_are_read(tmp_path):
    """The files have more columns, quoted links, names of the large semantic split, and any ids."""
    (tmp_path / "B1_facts.csv").write_text("id,type,S,P,O\n70,<S>,man,,\n12,<SPO>,dog,eat,meat\n")
    (tmp_path / "B1_BD_complete_train.csv").write_text(
        ",image_links,NLP_links,SPO,id,w_s,w_p,w_o\n"
        "0,'train/1.jpg',train/1.txt,\"<man, , >\",70,1,0,0\n"
        '1,train/2.jpg,train/2.txt,"<dog, eat, meat>",12,1,1,1\n'
    )
    (tmp_path / "B1_test.csv").write_text("image_links,id\n")
    facts, task = read_split(tmp_path)
    assert facts.facts == (Fact("dog", "eat", "meat"), Fact("man"))
    assert facts.train.images == ("train/1.jpg", "train/2.jpg")
    np.testing.assert_array_equal(facts.train.facts, [1, 0])
    assert facts.test.images == ()
    np.testing.assert_array_equal(task, [0, 0])


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("B1_facts.csv", "9,S,person,,", r"tasks 1 and 2 share 1 facts: \('person', '', ''\)"),
        ("B1_facts.csv", "0,S,man,,", "tasks 1 and 2 share 1 ids: 0"),
        ("B1_facts.csv", "3,S,man,,", r"B1_facts\.csv has the id 3 twice"),
        (
            "B1_facts.csv",
            "9,SP,dog,jump,",
            r"1 facts more than once: \('dog', 'jump', ''\)\. Correct",
        ),
        ("B1_facts.csv", "x,S,man,,", r"B1_facts\.csv has the id 'x'; an id must be an integer"),
        ("B1_facts.csv", "9,SO,man,,dog", r"1 facts that are not S, SP or SPO: \('man', '', 'd"),
        ("B1_facts.csv", "9,P,,jump,", r"not S, SP or SPO: \('', 'jump', ''\)"),
        ("B1_facts.csv", "9,S,man", r"B1_facts\.csv, line 4 has 3 cells, the header 5"),
        (
            "B2_train.csv",
            "train/a.jpg,3",
            r"B2_train\.csv has ids that are not in B2_facts\.csv: 3\. Correct",
        ),
        ("B1_train.csv", ",3", r"B1_train\.csv, line 4 names no image: ''\. Correct or remove"),
        ("B1_train.csv", "\n'.',3", r"B1_train\.csv, line 5 names no image: '\.'\. Correct"),
        ("B2_test.csv", "train/a.jpg,3.5", r"B2_test\.csv has the id '3.5'"),
    ],
)
def test_lines_that_contradict_the_rest_are_named(split, file, line, message):
    with (split / file).open("a") as written:
        written.write(line + "\n")
    with pytest.raises(DataError, match=message):
        read_split(split)


def test_a_missing_folder_and_a_missing_or_repeated_column_are_named(split):
    with pytest.raises(MissingDataError, match="is not a folder"):
        read_split(split / "none")
    (split / "B2_train.csv").write_text("images,id\n")
    with pytest.raises(DataError, match=r"B2_train\.csv lacks the columns image_links; it has "):
        read_split(split)
    # The first of both was read.
    (split / "B2_train.csv").write_text("image_links,id,id\n")
    with pytest.raises(DataError, match=r"B2_train\.csv has the column id twice; remove one"):
        read_split(split)


# ---- Images


@pytest.fixture
def images(tmp_path):
    """Write 6 x 4 red pixels with a blue 2 x 2 in rows 1 to 2 and columns 2 to 3."""
    pixels = np.full((4, 6, 3), [200, 0, 0], np.uint8)
    pixels[1:3, 2:4] = [0, 0, 200]
    for name in ("a.png", "b.PNG"):
        Image.fromarray(pixels).save(tmp_path / name)
    Image.fromarray(pixels).convert("P").save(tmp_path / "indexed.gif")
    return tmp_path


def test_squares_are_cut_out_and_are_black_beyond_the_image(images):
    squares = np.array([[1, 3, 2, 4], [-2, 2, 0, 4]], np.float32)
    inside, beyond = read_images(images, ["a.png", "b.PNG"], 4, squares)
    np.testing.assert_array_equal(inside, np.full((4, 4, 3), [0, 0, 200]))
    np.testing.assert_array_equal(beyond[:2], 0)
    np.testing.assert_array_equal(beyond[2], np.full((4, 3), [200, 0, 0]))
    np.testing.assert_array_equal(beyond[3, 2:], [[0, 0, 200]] * 2)


def test_without_squares_the_middle_is_shown_whatever_the_format(images):
    first, second = read_images(images, ["a.jpg", "indexed.gif"], 4)
    expected = np.full((4, 4, 3), [200, 0, 0])
    expected[1:3, 1:3] = [0, 0, 200]
    np.testing.assert_array_equal(first, expected)
    np.testing.assert_allclose(second, expected, atol=8)


def test_hidden_colors_of_a_photograph_are_white(images):
    Image.new("RGBA", (8, 8), (200, 0, 0, 0)).save(images / "clear.PNG")
    (result,) = read_images(images, ["clear.jpg"], 4)
    np.testing.assert_array_equal(result, np.full((4, 4, 3), 255))


def test_missing_images_are_counted_and_named(images):
    with pytest.raises(MissingDataError, match=r"2 of 3 images are listed but .*: x\.jpg, y\.jpg"):
        read_images(images, ["x.jpg", "a.png", "y.jpg", "x.jpg"], 4)
    many = [f"{i}.jpg" for i in range(9)]
    with pytest.raises(MissingDataError, match=r"9 of 9 .*4\.jpg and 4 more"):
        read_images(images, many, 4)


def test_a_file_that_is_no_image_is_named(images):
    (images / "text.jpg").write_text("no image")
    full = (images / "a.png").read_bytes()
    (images / "cut.png").write_bytes(full[: len(full) // 2])
    for name in ("text.jpg", "cut.png"):
        with pytest.raises(DataError, match=f"{name} is damaged or not the expected file"):
            read_images(images, [name], 4)


@pytest.mark.parametrize("link", ["../a.jpg", "/etc/a.jpg"])
def test_links_that_lead_out_of_the_folder_are_refused(tmp_path, link):
    (tmp_path / "images").mkdir()
    (tmp_path / "a.jpg").write_bytes(b"")
    message = r"1 of 2 images point outside .*images: .*Download the list"
    with pytest.raises(DataError, match=message):
        find_images(tmp_path / "images", ["b.jpg", link])
