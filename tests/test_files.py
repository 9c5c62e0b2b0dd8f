"""Result files: what they say of themselves, what is refused in reading, and what is left where writing fails."""

import dataclasses
import json
import os
import pickle
import pkgutil
import re
import shutil
import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest
import scipy.sparse
from results import KINDS, made

import jaxq
from jaxq import bikes, cli, ensemble, exact, graphs, heavy_traffic
from jaxq.ensemble import Result
from jaxq.fit_data import read
from jaxq.pull_theory import equilibrium

PROVENANCE = {"jaxq_version", "jax_version", "jaxlib_version", "numpy_version", "python_version", "machine", "generator", "device",
              "devices", "hosts", "x64", "date"}
SMALL = jaxq.Supermarket(4, 2, 0.7)
POOLS = [jaxq.Pool(0.5, 1.0, None), jaxq.Pool(0.5, 2.0, 3)]
THEORY = {
    "ExactStationary": lambda: exact.stationary(jaxq.TwoQueues(2, 0.5)),
    "ExactTwoQueues": lambda: exact.two_queues(3, 1.0),
    "Limit": lambda: heavy_traffic.limit([0.0, 1.0], [1, 3], 2, method="exact"),
    "Equilibrium": lambda: equilibrium(POOLS, 0.5),
    "BikeSharing": lambda: bikes.bike_sharing(3, 1.0, 1.0, [1.0, 2.0]),
}


@pytest.fixture(scope="module")
def run():
    return jaxq.simulate(SMALL, [0.0, 1.0, 2.0], 2**63 + 1, replicas=3, save="paths")


@pytest.fixture(scope="module")
def good(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "run.nc"
    run.save(path)
    return path


@pytest.fixture
def main(monkeypatch):
    """The command line, but for what must happen before JAX starts."""
    monkeypatch.setattr(cli, "_set_up", lambda options: None)
    return cli.main


# provenance

def test_a_run_says_where_it_came_from(good, run):
    said = jaxq.load(good).attrs
    assert PROVENANCE | {"jaxq_commit"} >= said.keys() & {name for name in said if name in PROVENANCE or "_commit" in name} >= PROVENANCE
    assert json.loads(said["model"]) == {"name": "Supermarket", "n": 4, "d": 2, "arrival_rate": 0.7, "replacement": True,
                                         "buffer": None, "eta": None}
    assert (int(said["seed"]), said["generator"], said["initial"], said["replicas"]) == (2**63 + 1, "threefry2x32-20", "default", 3)
    assert (said["seconds"], said["compile_seconds"]) == (run.seconds, run.compile_seconds)
    assert (said["devices"], said["hosts"], said["device"]) == (2, 1, "cpu")


@pytest.mark.parametrize("name", THEORY)
def test_theory_says_what_of_and_with_which_versions(name, tmp_path):
    result = THEORY[name]()
    assert type(result).__name__ == name
    result.save(tmp_path / "theory.nc")
    said = jaxq.load(tmp_path / "theory.nc").attrs
    assert said.keys() >= PROVENANCE
    assert said.keys() & {"model", "d", "places", "pools", "columns"}
    if "model" in said:
        assert json.loads(said["model"])["name"] in ("TwoQueues", "Supermarket")


@pytest.mark.slow
def test_every_class_of_results_is_known_to_load():
    for module in pkgutil.walk_packages(jaxq.__path__, "jaxq."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    program = "import jaxq.commands_bench; print(*(kind.__name__ for kind in jaxq.ensemble.Result.__subclasses__()))"
    known = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert set(known) == {kind.__name__ for kind in Result.__subclasses__()} == set(KINDS)


def test_every_class_of_results_comes_back_from_its_file(tmp_path):
    for kind in KINDS.values():
        made(kind).save(tmp_path / "made.nc")
        data = jaxq.load(tmp_path / "made.nc")
        assert data.attrs.keys() >= PROVENANCE | {"remark"}
        for name in kind.dims:
            if data.variables.get(name) is not None:
                assert data[name].dims == kind.dims[name]
    point = dataclasses.replace(made(KINDS["PairApproximation"]), times=None, tail=np.array([0.5, 0.2]), mean_queue_length=0.7)
    point.save(tmp_path / "point.nc")
    assert jaxq.load(tmp_path / "point.nc")["tail"].shape == (1, 2)


def test_the_commit_is_that_of_a_checkout_that_holds_the_package(tmp_path):
    package = tmp_path / "jaxq"
    package.mkdir()
    (package / "__init__.py").touch()
    assert ensemble._commit(package) is None  # installed: no checkout
    (tmp_path / ".git").write_text("gitdir: nowhere")
    assert ensemble._commit(package) is None  # damaged
    if not shutil.which("git"):
        pytest.skip("needs git")
    (tmp_path / ".git").unlink()

    def git(*words):
        return subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, capture_output=True,
                              text=True, check=True).stdout.strip()

    git("init")
    git("commit", "--allow-empty", "-m", "of another project")
    assert ensemble._commit(package) is None  # it does not track the package
    git("add", "jaxq")
    git("commit", "-m", "of the package")
    assert ensemble._commit(package) == git("rev-parse", "HEAD")


# reading

def test_what_a_newer_version_added_is_kept_and_what_lacks_is_told(good, tmp_path):
    data = jaxq.load(good)
    data.assign(news=("planet", [1.0])).assign_attrs(more="text", step=0.5).to_netcdf(tmp_path / "newer.nc", engine="h5netcdf")
    newer = jaxq.load(tmp_path / "newer.nc")
    assert (newer.news.values, newer.attrs["more"]) == ([1.0], "text")
    data.drop_vars("tail_mean").to_netcdf(tmp_path / "less.nc", engine="h5netcdf")
    for reader in (jaxq.load, read):
        with pytest.raises(ValueError, match=r"^load needs a netCDF file written by jaxq; [^\n]*less.nc' lacks the variable 'tail_mean'$"):
            reader(tmp_path / "less.nc")


@pytest.mark.parametrize(("change", "told"), [
    (lambda data: data.drop_vars("tail_mean"), "lacks the variable 'tail_mean'"),
    (lambda data: data.drop_vars("time"), "lacks the variable 'time'"),
    (lambda data: data.assign(tail_mean=data.tail_mean.T), "dimensions .'time', 'level'.; got .'level', 'time'."),
    (lambda data: data.assign(tail_mean=data.tail_mean[0]), "got .'level',."),
    (lambda data: data.assign(paths=data.paths[0, 0]), "must hold 'paths'"),
    (lambda data: data.assign(mean_queue_length=("time", ["a", "b", "c"])), "must hold numbers as 'mean_queue_length'"),
    (lambda data: data.assign_attrs(result="Oracle"), "unknown class 'Oracle'"),
    (lambda data: data.assign_attrs(result=3), "unknown class"),
    (lambda data: data.drop_attrs(), "lacks the attribute 'result'"),
    (lambda data: data.assign_attrs({"model": None}), "lacks the attribute 'model'"),
    (lambda data: data.assign_attrs(model="Supermarket"), "must hold dict.* as 'model'"),
    (lambda data: data.assign_attrs(replicas="many"), "must hold int as 'replicas'"),
    (lambda data: data.assign_attrs(seconds="1 s"), "must hold float as 'seconds'"),
    (lambda data: data.assign_attrs(algorithm=3), "must hold str as 'algorithm'"),
])
def test_another_shape_than_the_class_has_is_told(good, change, told):
    data = jaxq.load(good)
    assert ensemble.complaint(data) == ""
    data = change(data)
    assert re.fullmatch(rf"[^\n]*{told}[^\n]*", ensemble.complaint(data))
    with pytest.raises(ValueError, match=rf"^data must [^\n]*{told if 'result' in data.attrs else ''}[^\n]*$"):
        read([data])


def test_no_cut_of_a_good_file_loads(good, tmp_path):
    whole, cut = good.read_bytes(), tmp_path / "cut.nc"
    assert len(whole) > 10000
    for size in [*range(0, len(whole), 1000), len(whole) - 1]:
        cut.write_bytes(whole[:size])
        for reader in (jaxq.load, read):
            with pytest.raises(ValueError, match=r"^load needs a netCDF file written by jaxq; [^\n]*cannot be read \([^\n]*\)$"):
                reader(cut)


def test_no_cut_of_a_graph_loads_and_no_pickle_is_opened(tmp_path):
    matrix, path = scipy.sparse.csr_array(np.ones((60, 60)) - np.eye(60)), tmp_path / "graph.npz"
    scipy.sparse.save_npz(path, matrix, compressed=False)
    whole = path.read_bytes()
    assert len(whole) > 10000
    assert graphs.load(path).n == 60
    for size in [*range(0, len(whole), 1000), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"^a graph file must be one written by[^\n]*$"):
            graphs.load(path)
    path.write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    with pytest.raises(ValueError, match="a graph file must be one written by"):
        graphs.load(path)
    np.savez(path, format="csr", shape=[2, 2], indices=[1, 0], indptr=[0, 1, 2], data=np.array([Trap(tmp_path / "sprung")] * 2))
    with pytest.raises(ValueError, match="a graph file must be one written by"):
        graphs.load(path)
    far = {"format": "csr", "shape": [2, 2], "indptr": [0, 1, 2], "data": [1, 1]}
    for indices in ([1, 10**6], [1, -1]):
        np.savez(path, **far, indices=indices)
        with pytest.raises(ValueError, match="a graph file must be one written by"):
            graphs.load(path)
    assert not (tmp_path / "sprung").exists()


class Trap:
    """What makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("content", [b"", b"n,level,value\n1,2,3\n", b"\x89HDF\r\n\x1a\n", b"CDF\x01" + bytes(100),
                                     pickle.dumps(Trap("/tmp/sprung by a test of jaxq")), None],
                         ids=["empty", "text", "HDF5 signature", "netCDF3", "pickle", "folder"])
def test_other_files_are_refused_by_every_reader(content, main, tmp_path, capsys):
    path = tmp_path / "other.nc"
    path.mkdir() if content is None else path.write_bytes(content)
    for reader in (jaxq.load, graphs.load, read, lambda path: read([path])):
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            reader(path)
    path.rename(tmp_path / "other.csv")
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        read(tmp_path / "other.csv")
    words = ["study", "--d", "2", "--beta", "1", "--n", "100", "--t-end", "1", "--replicas", "2", "--start", str(tmp_path / "other.csv")]
    assert main(words) == 2
    assert re.fullmatch(r"jaxq: error: [^\n]+\n", capsys.readouterr().err)
    assert not os.path.exists("/tmp/sprung by a test of jaxq")


def test_an_unreadable_file_is_refused(good, tmp_path):
    path = shutil.copy(good, tmp_path / "locked.nc")
    path.chmod(0)
    for other in ("/proc/self/mem", "/nowhere/run.nc", path):
        if other != path or not os.access(path, os.R_OK):  # root reads it all the same
            with pytest.raises(ValueError, match=r"^load needs a netCDF file written by jaxq; [^\n]*$"):
                jaxq.load(other)
