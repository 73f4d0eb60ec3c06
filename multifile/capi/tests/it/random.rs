//! Random programs over the whole interface, by processes and threads, against a model of SIONlib:
//! `tests/c/random.c`.

use tempfile::TempDir;

use crate::{
    harness::check,
    launch::{Link, Mpi, Source, build, there},
};

const PROGRAM: Source =
    Source { file: "c/random.c", part: "ompi", shims: &["sion_mpi", "sion_ompi", "sion_omp"] };
/// Processes of a run; most programs use some of them.
const RANKS: u32 = 8;
const CASES: u64 = 200;

/// `ROUNDS=n` for so many programs, `SEED=n` to begin with another.
#[test]
fn random_programs_read_and_write_what_the_model_says() {
    let number = |name| option_env(name).map(|value| value.parse::<u64>().expect("a number"));
    let (seed, cases) = (number("SEED").unwrap_or(0), number("ROUNDS").unwrap_or(CASES));
    let mut compilers = [Mpi::OpenMpi, Mpi::Mpich].into_iter();
    let Some(mpi) = compilers.find(|mpi| there(&mpi.compiler("mpicc"))) else { return };
    let folder = TempDir::new().unwrap();
    let program = build(PROGRAM, Some(mpi), Link::Sanitized, &folder);
    // A job has a deadline, whatever the number of programs.
    for from in (seed..seed + cases).step_by(usize::try_from(CASES).unwrap()) {
        let count = CASES.min(seed + cases - from);
        let mut ranks = mpi.ranks(RANKS, &program, &folder);
        ranks.args([from.to_string(), count.to_string()]);
        let said = check(ranks.env("OMP_WAIT_POLICY", "passive"));
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains(&format!("{count} cases")), "{said}");
    }
}

#[expect(clippy::disallowed_methods, reason = "how a test is told to repeat a seed")]
fn option_env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
