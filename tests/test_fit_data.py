"""What the fit reads: results, study folders, and the covariance of their replicas."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxq
from jaxq import fit_data


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    return folder, jaxq.scaling_study(2, 1.0, n=[400, 25600], t_end=2.0, replicas=20, key=0, num_times=3, out_dir=folder)


def test_a_study_folder_gives_back_tails_their_errors_and_the_start(study):
    folder, result = study
    data = fit_data.read(folder)
    assert (data.d, data.replacement, [block.n for block in data.blocks]) == (2, True, [400, 25600])
    for k, block in enumerate(data.blocks):
        at = block.level - 1
        np.testing.assert_allclose(block.value, 1 - result.T_mean[k, -1, at] / result.eta[k], rtol=1e-12)
        np.testing.assert_allclose(np.sqrt(np.diag(block.covariance)), result.T_stderr[k, -1, at] / result.eta[k], rtol=1e-12)
        assert np.all(block.time == 2.0)
        assert block.replicas is None
        np.testing.assert_allclose(block.start[:8], 1 - result.T_mean[k, 0] / result.eta[k], rtol=1e-12)
        # levels 4 and up start at the fixed point, rounded to 1/n; above the eighth they go on
        fixed = (1 - 1 / result.eta[k]) ** (2.0 ** np.arange(1, block.start.size + 1) - 1)
        np.testing.assert_allclose(block.start[3:], fixed[3:], atol=1 / block.n)
        assert (block.start.size > 8) == (k == 1)  # at eta = 20 the eighth is empty
    in_memory = fit_data.read(result, levels=2, times=[1.0, 2.0])
    assert [block.value.size for block in in_memory.blocks] == [4, 4]
    with pytest.raises(ValueError, match=r"times must be saved ones after 0; got \[0.5\] where 0, 1, 2 are saved"):
        fit_data.read(folder, times=0.5)


def test_paths_give_the_covariance_of_the_mean_over_replicas():
    runs = [jaxq.simulate(jaxq.Supermarket(n, 2, 0.8), [0.0, 2.0, 4.0], 1, replicas=64, save="paths") for n in (100, 200)]
    block = fit_data.read(runs, levels=2, times=[2.0, 4.0]).blocks[1]
    paths = np.concatenate([runs[1].paths[1, :2], runs[1].paths[2, :2]]) / 200
    np.testing.assert_allclose(block.value, paths.mean(axis=1), rtol=1e-12)
    away = paths - paths.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(block.covariance, away @ away.T / (63 * 64), rtol=1e-10)
    assert (block.level.tolist(), block.time.tolist(), block.replicas) == ([1, 2, 1, 2], [2, 2, 4, 4], 64)
    assert not block.start.any()
    plain = [jaxq.simulate(jaxq.Supermarket(n, 2, 0.8), [0.0, 2.0, 4.0], 1, replicas=64) for n in (100, 200)]
    moments = fit_data.read(plain, levels=2).blocks[1]
    np.testing.assert_allclose(np.diag(moments.covariance), plain[1].tail_stderr[-1, :2] ** 2, rtol=1e-12)


def test_columns_may_be_of_any_table():
    import xarray

    table = {"n": [10, 20, 10], "level": [1, 1, 2], "value": [0.5, 0.6, 0.2], "stderr": [0.1, 0.2, 0.3]}
    want = fit_data.read(table)
    assert [block.level.tolist() for block in want.blocks] == [[1, 2], [1]]
    for same in ({name: jnp.asarray(column) for name, column in table.items()},
                 xarray.Dataset({name: ("row", column) for name, column in table.items()})):
        for one, other in zip(fit_data.read(same).blocks, want.blocks, strict=True):
            np.testing.assert_allclose(one.value, other.value, rtol=1e-6)
            np.testing.assert_allclose(one.covariance, other.covariance, rtol=1e-6)
