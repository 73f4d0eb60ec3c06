"""Each rank: writes a region of one shared Zarr v3 array (a file per chunk), its own HDF5 file (h5py),
its own netCDF-4 file, npy/npz checkpoints and a JSON log; barrier; each rank reads what its neighbour wrote and checks it.
usage: arrays.py DIR"""
import sys, os, json, hashlib
import numpy as np, h5py, zarr, netCDF4
from mpi4py import MPI
c = MPI.COMM_WORLD; r, n = c.rank, c.size; d = sys.argv[1]
N, C = 64 * n, 32
if r == 0:
    os.makedirs(d + "/ckpt", exist_ok=True)
    zarr.create_array(store=d + "/field.zarr", shape=(N, 256), chunks=(C, C), dtype="f8", overwrite=True)
c.Barrier()
rng = np.random.default_rng(1234 + r)
a = rng.standard_normal((64, 256))
z = zarr.open_array(d + "/field.zarr", mode="r+")
z[64 * r:64 * (r + 1)] = a
with h5py.File(f"{d}/ckpt/state.{r:05d}.h5", "w", libver="latest") as f:
    g = f.create_group("step0"); g.create_dataset("u", data=a, chunks=(16, 64), compression="gzip"); g.attrs["rank"] = r
    for k in range(32): f.create_dataset(f"particles/{k:03d}", data=rng.integers(0, 1 << 30, 1000))
with netCDF4.Dataset(f"{d}/ckpt/mesh.{r:05d}.nc", "w") as f:
    f.createDimension("x", 1024); v = f.createVariable("T", "f4", ("x",)); v[:] = rng.random(1024, dtype="f4")
for k in range(25):
    np.save(f"{d}/ckpt/p{r:05d}.{k:03d}.npy", rng.random(500))
np.savez_compressed(f"{d}/ckpt/s{r:05d}.npz", a=a, r=r)
with open(f"{d}/ckpt/log.{r:05d}.jsonl", "a") as f:
    for k in range(100): f.write(json.dumps({"step": k, "e": float(rng.random())}) + "\n"); f.flush()
c.Barrier()
m = (r + 1) % n                              # read what the next rank wrote
rng = np.random.default_rng(1234 + m); b = rng.standard_normal((64, 256))
assert np.array_equal(zarr.open_array(d + "/field.zarr", mode="r")[64 * m:64 * (m + 1)], b)
with h5py.File(f"{d}/ckpt/state.{m:05d}.h5", "r") as f:
    assert np.array_equal(f["step0/u"][...], b) and f["step0"].attrs["rank"] == m
    for k in range(32): assert np.array_equal(f[f"particles/{k:03d}"][...], rng.integers(0, 1 << 30, 1000))
with netCDF4.Dataset(f"{d}/ckpt/mesh.{m:05d}.nc") as f: assert np.array_equal(f["T"][:].data, rng.random(1024, dtype="f4"))
for k in range(25):
    assert np.array_equal(np.load(f"{d}/ckpt/p{m:05d}.{k:03d}.npy", mmap_mode="r" if k % 2 else None), rng.random(500))
assert np.array_equal(np.load(f"{d}/ckpt/s{m:05d}.npz")["a"], b)
assert sum(1 for _ in open(f"{d}/ckpt/log.{m:05d}.jsonl")) == 100
c.Barrier()
if r == 0:
    s = hashlib.sha256()
    for root, ds, fs in os.walk(d):
        ds.sort()
        for x in sorted(fs):
            if not x.endswith((".nc", ".npz")): s.update(x.encode()); s.update(open(os.path.join(root, x), "rb").read())
    print("OK ranks", n, "files", sum(len(fs) for _, _, fs in os.walk(d)), "sha256", s.hexdigest()[:16])
