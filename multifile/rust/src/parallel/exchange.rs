//! The exchange: every rank tells rank 0 something or an error, and learns the common outcome.

use crate::{
    codec::narrow,
    error::{Error, Result},
    group::Group,
};

/// Bytes of one rank's record in an exchange.
#[derive(Clone, Copy)]
pub(crate) struct Lens {
    /// Bytes told to rank 0.
    pub(crate) ask: usize,
    /// Bytes a rank learns.
    pub(crate) answer: usize,
}

impl Lens {
    /// Only outcomes travel.
    pub(crate) const NONE: Self = Self { ask: 0, answer: 0 };

    /// Ranks learn nothing but the outcome.
    pub(crate) const fn asks(ask: usize) -> Self {
        Self { ask, answer: 0 }
    }
}

/// Gathers `mine`, `lens.ask` bytes or an error, on rank 0; there `decide` makes an answer of
/// `lens.answer` bytes for every rank; scatters the answers.
///
/// If any rank brought an error, or `decide` failed, all ranks return the error of the lowest.
pub(crate) fn exchange<G: Group>(
    group: &G,
    mine: Result<Vec<u8>>,
    lens: Lens,
    mut decide: impl FnMut(&[&[u8]]) -> Result<Vec<Vec<u8>>>,
) -> Result<Vec<u8>> {
    let answers = exchange_each(group, vec![mine], lens, |_, asked| decide(asked))?;
    answers.into_iter().next().ok_or(Error::TooLarge)?
}

/// As [`exchange`], for as many things at once as there are in `mine`, of which each succeeds or
/// fails by itself; `decide` is told which it is about.
pub(crate) fn exchange_each<G: Group>(
    group: &G,
    mine: Vec<Result<Vec<u8>>>,
    Lens { ask: ask_len, answer: answer_len }: Lens,
    mut decide: impl FnMut(usize, &[&[u8]]) -> Result<Vec<Vec<u8>>>,
) -> Result<Vec<Result<Vec<u8>>>> {
    let (count, ranks) = (mine.len(), narrow(group.size().into()));
    let mine = mine.into_iter().flat_map(|mine| with_error(mine, ask_len, group.rank()));
    let all = group.gather(&mine.collect::<Vec<u8>>())?;
    let mut answers = Vec::new();
    if group.rank() == 0 {
        let asked: Vec<&[u8]> = all.chunks_exact(Error::ENCODED_LEN + ask_len).collect();
        let decided = (0..count).map(|index| {
            let asked = asked.iter().skip(index).step_by(count).copied();
            common(asked).and_then(|asked| decide(index, &asked))
        });
        let mut decided: Vec<_> = decided.map(|decided| each(decided, ranks)).collect();
        for _ in 0..ranks {
            for answer in decided.iter_mut().filter_map(Iterator::next) {
                answers.extend(with_error(answer, answer_len, 0));
            }
        }
    }
    let mut answer = vec![0; count * (Error::ENCODED_LEN + answer_len)];
    group.scatter(&answers, &mut answer)?;
    let answers = answer.chunks_exact(Error::ENCODED_LEN + answer_len);
    Ok(answers.map(|answer| checked(answer.to_vec())).collect())
}

/// Returns the same on all ranks: what the lowest failing one brought, or success.
pub(crate) fn agree<G: Group>(group: &G, mine: Result<()>) -> Result<()> {
    let all = group.gather(&with_error(mine.map(|()| Vec::new()), 0, group.rank()))?;
    let mut outcome =
        with_error(common(all.chunks_exact(Error::ENCODED_LEN)).map(|_| Vec::new()), 0, 0);
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
        for answer in each(decide(), narrow(group.size().into())) {
            answers.extend(with_error(answer, answer_len, 0));
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
    debug_assert!(content.len() <= len, "{} bytes in place of {len}", content.len());
    bytes.extend(content);
    bytes.resize(Error::ENCODED_LEN + len, 0);
    bytes
}

fn checked(mut answer: Vec<u8>) -> Result<Vec<u8>> {
    let content = answer.split_off(Error::ENCODED_LEN);
    Error::decode(&answer).map_or(Ok(content), Err)
}

/// Returns the decision for each of `ranks`, or the same error for each.
fn each(decided: Result<Vec<Vec<u8>>>, ranks: usize) -> std::vec::IntoIter<Result<Vec<u8>>> {
    let decided = decided.and_then(|parts| {
        invariant!(parts.len() == ranks, "every rank gets an answer",
            else return Err(Error::Poisoned));
        Ok(parts)
    });
    let each: Vec<_> = match decided {
        Ok(parts) => parts.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error); ranks],
    };
    each.into_iter()
}

/// Returns the contributions of all ranks, or the error of the lowest that failed.
fn common<'a>(all: impl Iterator<Item = &'a [u8]>) -> Result<Vec<&'a [u8]>> {
    let asked = all.map(|part| {
        let (error, content) = part.split_at_checked(Error::ENCODED_LEN).unwrap_or_default();
        Error::decode(error).map_or(Ok(content), Err)
    });
    asked.collect()
}
