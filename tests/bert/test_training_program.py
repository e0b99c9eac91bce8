"""The program of a run: code counts, comments and docstrings don't."""

from helpers.bert import program

CODE = '''
def double(x):
    """Give twice x."""
    return 2 * x  # twice
'''


def test_comments_and_docstrings_dont_count_and_code_does():
    undocumented = "def double(x):\n    pass\n    return 2 * x"
    assert program._code_of(CODE) == undocumented
    changed_code = CODE.replace("2 * x", "3 * x")
    assert program._code_of(changed_code) != undocumented


def test_it_names_the_libraries_that_decide_numbers():
    current = program.current_program()
    assert set(current) == {
        "sources",
        "tensorflow",
        "tf-keras",
        "transformers",
        "numpy",
        "tokenizers",
    }
    for version in current.values():
        assert version[0].isalnum()
