"""Rows that no offer could be made of are kept as they came, once for as long as the cloud keeps sending them."""

from tests.service.market.builders import Store, a_failure, a_rejected_row, an_answer, an_offer


def test_a_rejected_row_is_kept_raw_with_its_reason(store: Store) -> None:
    raw = '{"gpu":"voodoo","note":"\\u0000 \\ud800 ünï"}'
    report = store.poll(an_answer(rejected=(a_rejected_row("x", raw, detail="gpu: 'voodoo'"),)))
    assert store.rows("SELECT offer_id, reason, detail, raw, lower(valid), upper(valid) FROM rejected_row") == [
        ("x", "unknown_gpu", "gpu: 'voodoo'", raw, report.at, None)
    ]
    assert store.scalar("SELECT rejected FROM poll") == {"unknown_gpu": 1}


def test_a_row_that_keeps_coming_is_kept_once_per_streak(store: Store) -> None:
    bad = an_answer(an_offer(), rejected=(a_rejected_row(),))
    good = an_answer(an_offer())
    reports = store.poll_all(bad, bad, bad, good, good, bad)
    assert store.rows("SELECT lower(valid), upper(valid) FROM rejected_row ORDER BY id") == [
        (reports[0].at, reports[3].at),
        (reports[5].at, None),
    ]


def test_a_row_without_id_is_known_by_its_content(store: Store) -> None:
    first = an_answer(rejected=(a_rejected_row(None, '{"n":1}'), a_rejected_row(None, '{"n":2}')))
    store.poll_all(
        first, first, an_answer(rejected=(a_rejected_row(None, '{"n":2}'), a_rejected_row(None, '{"n":3}')))
    )
    assert store.rows("SELECT raw FROM rejected_row WHERE upper_inf(valid) ORDER BY raw") == [
        ('{"n":2}',),
        ('{"n":3}',),
    ]
    assert store.scalar("SELECT count(*) FROM rejected_row") == 3


def test_one_row_may_be_rejected_for_two_reasons(store: Store) -> None:
    rows = (a_rejected_row("x"), a_rejected_row("x", reason="bad_number"))
    store.poll_all(an_answer(rejected=rows), an_answer(rejected=rows[1:]))
    assert store.rows("SELECT reason FROM rejected_row WHERE upper_inf(valid)") == [("bad_number",)]


def test_the_same_row_twice_in_one_answer_is_kept_once_and_counted_twice(store: Store) -> None:
    store.poll(an_answer(rejected=(a_rejected_row("x"), a_rejected_row("x"))))
    assert store.scalar("SELECT count(*) FROM rejected_row") == 1
    assert store.scalar("SELECT rejected FROM poll") == {"unknown_gpu": 2}


def test_polls_that_do_not_speak_of_all_rows_end_none(store: Store) -> None:
    store.poll(an_answer(rejected=(a_rejected_row(),)))
    store.poll_all(an_answer(outcome="partial"), a_failure(), an_answer(outcome="prices_only"))
    assert store.scalar("SELECT count(*) FROM rejected_row WHERE upper_inf(valid)") == 1


def test_a_huge_row_is_cut(store: Store) -> None:
    store.poll(an_answer(rejected=(a_rejected_row("x", "9" * 1_000_000),)))
    assert store.scalar("SELECT length(raw) FROM rejected_row") == 65_536
