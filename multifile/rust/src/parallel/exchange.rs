//! The exchange: every rank tells rank 0 something or an error, and learns the common outcome.

use crate::{
    codec::narrow,
    error::{Error, Result},
    group::Group,
};

/// Gathers `mine`, `ask_len` bytes or an error, on rank 0; there `decide` makes an answer of
/// `answer_len` bytes for every rank; scatters the answers.
///
/// If any rank brought an error, or `decide` failed, all ranks return the error of the lowest.
pub(crate) fn exchange<G: Group>(
    group: &G,
    mine: Result<Vec<u8>>,
    (ask_len, answer_len): (usize, usize),
    decide: impl FnOnce(&[&[u8]]) -> Result<Vec<Vec<u8>>>,
) -> Result<Vec<u8>> {
    let all = group.gather(&with_error(mine, ask_len, group.rank()))?;
    let mut answers = Vec::new();
    if group.rank() == 0 {
        let decided = common(&all, ask_len).and_then(|asked| decide(&asked));
        let parts = match decided {
            Ok(parts) => parts.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); narrow(group.size().into())],
        };
        for part in parts {
            answers.extend(with_error(part, answer_len, 0));
        }
    }
    let mut answer = vec![0; Error::ENCODED_LEN + answer_len];
    group.scatter(&answers, &mut answer)?;
    checked(answer)
}

/// Returns the same on all ranks: what the lowest failing one brought, or success.
pub(crate) fn agree<G: Group>(group: &G, mine: Result<()>) -> Result<()> {
    let all = group.gather(&with_error(mine.map(|()| Vec::new()), 0, group.rank()))?;
    let mut outcome = with_error(common(&all, 0).map(|_| Vec::new()), 0, 0);
    group.broadcast(&mut outcome)?;
    checked(outcome).map(|_| ())
}

/// Scatters what `decide` makes on rank 0, or its error to all.
pub(crate) fn hand_out<G: Group>(
    group: &G,
    answer_len: usize,
    decide: impl FnOnce() -> Result<Vec<Vec<u8>>>,
) -> Result<Vec<u8>> {
    let mut answers = Vec::new();
    if group.rank() == 0 {
        let parts = match decide() {
            Ok(parts) => parts.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); narrow(group.size().into())],
        };
        for part in parts {
            answers.extend(with_error(part, answer_len, 0));
        }
    }
    let mut answer = vec![0; Error::ENCODED_LEN + answer_len];
    group.scatter(&answers, &mut answer)?;
    checked(answer)
}

/// An outcome in a fixed number of bytes: the error, zero if there is none, and the content.
fn with_error(outcome: Result<Vec<u8>>, len: usize, rank: u32) -> Vec<u8> {
    let (mut bytes, content) = match outcome {
        Ok(content) => (vec![0; Error::ENCODED_LEN], content),
        Err(error) => (error.on_rank(rank).encode().to_vec(), Vec::new()),
    };
    bytes.extend(content);
    bytes.resize(Error::ENCODED_LEN + len, 0);
    bytes
}

fn checked(mut answer: Vec<u8>) -> Result<Vec<u8>> {
    let content = answer.split_off(Error::ENCODED_LEN);
    Error::decode(&answer).map_or(Ok(content), Err)
}

/// What all ranks brought, or the error of the lowest that failed.
fn common(all: &[u8], ask_len: usize) -> Result<Vec<&[u8]>> {
    let parts = all.chunks_exact(Error::ENCODED_LEN + ask_len);
    let asked = parts.map(|part| {
        let (error, content) = part.split_at_checked(Error::ENCODED_LEN).unwrap_or_default();
        Error::decode(error).map_or(Ok(content), Err)
    });
    asked.collect()
}
