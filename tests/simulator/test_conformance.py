"""The simulated torch_musa has the vendor's modules, names, signatures and patches, but for one reviewed list."""

import json

import pytest

from tests.simulator import conformance


@pytest.fixture(scope="module", params=conformance.VERSIONS)
def compared(request):
    return request.param, conformance.collect(request.param)


def test_only_reviewed_deviations(compared):
    version, found = compared
    unlisted, stale = conformance.judge(version, found)
    assert unlisted == {}, "not in facts/deviations.json"
    assert stale == [], "these deviations are gone: take them off facts/deviations.json"


def test_counts(compared, record_property):
    version, found = compared
    counts = conformance.counts(found)
    record_property(f"torch_musa {version}", json.dumps(counts))
    assert sum(counts.values()) == len(found)
    assert counts["equal"] >= {"2.5.0": 1350, "2.7.0": 1360, "2.7.1": 1500}[version], counts


def test_reviewed_list_is_sound():
    rows = json.loads((conformance.FACTS / "deviations.json").read_text())["rows"]
    assert len({(row["where"], *row.get("versions", ())) for row in rows}) == len(rows)
    assert all(row["why"].strip() for row in rows)
    assert all(set(row.get("versions", ())) <= set(conformance.VERSIONS) for row in rows)


def test_judge_tells_what_is_new_and_what_is_gone():
    listed = conformance.deviations("2.7.1")
    everything = {pattern.replace("*", "x"): ["absent", "absent"] for pattern in listed}
    assert conformance.judge("2.7.1", everything) == ({}, [])
    unlisted, stale = conformance.judge(
        "2.7.1", {"torch_musa:new": ["deviating", "other"], "torch_musa:i": ["equal", ""]}
    )
    assert unlisted == {"torch_musa:new": ["deviating", "other"]}
    assert set(stale) == set(listed)


def test_facts_of_older_versions_build_on_the_newest():
    newest, oldest = conformance.facts("2.7.1"), conformance.facts("2.5.0")
    assert "StreamContext" in newest["modules"]["torch_musa"]
    assert "StreamContext" not in oldest["modules"]["torch_musa"] and "is_loaded" in oldest["modules"]["torch_musa"]
    assert len(newest["modules"]) == 100 and len(oldest["modules"]) == 98
