//! How a set comes to be: every rank opens its files and asks, rank 0 plans, cuts what was there,
//! and grants. So a set that cannot be leaves the one before it whole.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    path::Path,
};

use crate::{
    codec::{Fields, narrow, put_u32},
    cursor::Fill,
    error::{Argument, Error, Result},
    group::Group,
    header::FLAG2_AT,
    mark::Mark,
    name,
    output::{Manner, Output},
    packing::Packing,
    parallel::{
        apart,
        exchange::{Lens, exchange},
        records::{Ask, Grant, Part as _},
        tables::{Root, write_own_front},
        writer::{Local, ParWriter},
    },
    plan::{FileShape, NewTask, Options, plan},
    storage::{File, Storage, read_up_to},
    task_writer::TaskState,
    writer::{fs_block_len, instance, open_to_create},
};

/// A set to create: where it goes, and how.
#[derive(Debug)]
pub struct NewSet<'a, S> {
    /// The storage that holds it.
    pub storage: &'a S,
    /// Its path there.
    pub path: &'a Path,
    /// How to store it.
    pub options: &'a Options,
}

impl<S> Clone for NewSet<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for NewSet<'_, S> {}

/// A set whose files this rank has opened, before it knows where its tasks go.
pub(super) struct Opening<'a, S: Storage> {
    set: NewSet<'a, S>,
    files: BTreeMap<u32, S::File>,
}

impl<'a, S: Storage> Opening<'a, S> {
    /// Opens the files that `tasks` go to and gives them to `prepare`.
    pub(super) fn begin(
        set: NewSet<'a, S>,
        tasks: &[NewTask],
        mut prepare: impl FnMut(u32, &S::File) -> Result<()>,
    ) -> Result<Self> {
        set.options.check(set.options.name_for(set.path))?;
        let files = open_files(set.storage, set.path, tasks)?;
        files.iter().try_for_each(|(number, file)| prepare(*number, file))?;
        Ok(Self { set, files })
    }

    /// Encodes this rank's request; `fingerprint` stands for the arguments that all ranks must pass
    /// alike.
    pub(super) fn asks(&self, tasks: &[NewTask], fingerprint: u32) -> Result<Vec<Ask>> {
        let ask = |task: &NewTask| {
            let file = self.files.get(&task.file).ok_or(Argument::Mapping)?;
            let fs_block_len = fs_block_len(file, self.set.options)?;
            Ok(Ask { task: *task, fs_block_len, options: fingerprint })
        };
        tasks.iter().map(ask).collect()
    }

    /// Begins to write. All ranks have agreed that opening succeeded: what fails from here on
    /// shows at closing.
    pub(super) fn granted(
        mut self,
        tasks: impl Iterator<Item = (NewTask, Grant)>,
        spread: usize,
        root: Option<Root>,
    ) -> ParWriter<S> {
        let mut writer = ParWriter {
            storage: self.set.storage.clone(),
            path: self.set.path.to_owned(),
            options: self.set.options.clone(),
            outputs: BTreeMap::new(),
            tasks: Vec::new(),
            spread,
            fs_block_len: 0,
            apart: None,
            root,
        };
        for (task, grant) in tasks {
            writer.fs_block_len = grant.fs_block_len;
            writer.apart = apart::instance(&grant, self.set.options);
            self.begin_task(&mut writer, NewTask { local_rank: grant.local_rank, ..task }, &grant);
        }
        writer
    }

    fn begin_task(&mut self, writer: &mut ParWriter<S>, task: NewTask, grant: &Grant) {
        let options = self.set.options;
        let state = TaskState::new(Fill::new(grant.place), Vec::new());
        if let Some(file) = self.files.remove(&task.file) {
            let journal = name::journal(&self.set.storage.physical_name(self.set.path, task.file));
            let manner = Manner {
                number: task.file,
                task_count: grant.task_count,
                buffer_len: options.buffer_len,
                journal: options.journal.then_some((self.set.path, &*journal)),
                blank: true,
                instance: grant.instance,
            };
            let is_lost = task.local_rank == 0 && !is_described(&file, grant, options);
            let mut output = Output::new(self.set.storage, file, &manner);
            if is_lost {
                output.poison();
            }
            writer.outputs.insert(task.file, output);
        }
        if let Some(output) = writer.outputs.get_mut(&task.file).filter(|_| !grant.by_root) {
            let (file_count, task_count) = (grant.file_count, grant.task_count);
            let shape = FileShape { number: task.file, file_count, task_count };
            let name = options.name_for(self.set.path);
            let header = options.header(name, grant.instance, grant.fs_block_len, shape);
            if write_own_front(output, &header, &task, &state.fill).is_err() {
                output.poison();
            }
        }
        let (collector, collector_place) = (grant.collector, grant.collector_place);
        writer.tasks.push(Local { task, state, collector, collector_place, recorded: 0 });
    }
}

/// Brings what all ranks ask for to rank 0, where `decide` makes `copies` grants for each ask, and
/// returns this rank's, and the largest number of asks of any rank.
///
/// Records are equally long, and no rank knows how many tasks another has. So there is room for
/// `room` asks of each, and only if a rank has more, a second exchange with room for all.
pub(super) fn grants<G: Group>(
    group: &G,
    asks: Result<&[Ask]>,
    room: usize,
    copies: usize,
    mut decide: impl FnMut(&[Vec<Ask>]) -> Result<Vec<Vec<Grant>>>,
) -> Result<(usize, Vec<Grant>)> {
    let mut within = |room: usize| {
        let lens = Lens { ask: 4 + room * Ask::LEN, answer: 4 + room * copies * Grant::LEN };
        let mine = asks.map(|asks| {
            let mut bytes = Vec::new();
            put_u32(&mut bytes, u32::try_from(asks.len()).unwrap_or(u32::MAX));
            asks.iter().take(room).for_each(|ask| ask.put(&mut bytes));
            bytes
        });
        let answer = exchange(group, mine, lens, |asked| {
            let counts = asked.iter().filter_map(|asked| Fields::little(asked).u32());
            let most = counts.max().unwrap_or(0);
            let mut answers = vec![most.to_le_bytes().to_vec(); asked.len()];
            if narrow(most.into()) > room {
                return Ok(answers);
            }
            let asked: Vec<Vec<Ask>> = asked.iter().map(|asked| Ask::take_all(asked)).collect();
            for (answer, grants) in answers.iter_mut().zip(decide(&asked)?) {
                grants.iter().for_each(|grant| grant.put(answer));
            }
            Ok(answers)
        })?;
        let most = Fields::little(&answer).u32().ok_or(Error::TooLarge)?;
        let grants = answer.get(4..).unwrap_or_default().chunks_exact(Grant::LEN);
        Ok((narrow(most.into()), grants.filter_map(Grant::of).collect()))
    };
    let (most, granted) = within(room)?;
    if most > room { within(most) } else { Ok((most, granted)) }
}

/// Refuses ranks that passed different options or names.
pub(super) fn alike(asks: &[Vec<Ask>], fingerprint: u32) -> Result<()> {
    let alike = asks.iter().flatten().all(|ask| ask.options == fingerprint);
    if alike { Ok(()) } else { Err(Argument::Disagree.into()) }
}

/// Rank 0 plans the set from what all ranks `asked` for and the tasks that nobody writes to, cuts
/// its files, and describes it if it is small or if there are any of those.
pub(super) fn decide<S: Storage>(
    set: NewSet<'_, S>,
    asked: &[Vec<Ask>],
    nobodys: &[NewTask],
) -> Result<(Root, Vec<Vec<Grant>>)> {
    let NewSet { storage, path, options } = set;
    let all = asked.iter().flatten();
    let fs_block_len =
        options.fs_block_len.or_else(|| all.clone().map(|ask| ask.fs_block_len).max());
    let mut tasks: Vec<NewTask> = all.map(|ask| ask.task).chain(nobodys.iter().copied()).collect();
    // The mapping names tasks in the order of their global ranks.
    tasks.sort_by_key(|task| task.global_rank);
    let name = options.name_for(path);
    let instance = instance();
    let plans = plan(&tasks, fs_block_len.unwrap_or(1), options, name, instance)?;
    let place = |ask: &Ask| (ask.task.file, ask.task.local_rank);
    let owned = asked.iter().map(|asks| asks.iter().map(place).collect()).collect();
    let root = Root { plans, owned, instance };
    let is_apart = options.apart && root.plans.len() > 1;
    if !is_apart {
        root.cut(storage, path)?;
    }
    let by_root = !is_apart && (root.front_is_small() || !nobodys.is_empty());
    if by_root {
        root.write_fronts(storage, path)?;
    }
    let file_count = u32::try_from(root.plans.len()).map_err(|_| Error::TooLarge)?;
    let collectors = collectors(&root, &tasks, options)?;
    let grant = |(file, local): &(u32, u32)| {
        let plan = root.plans.get(narrow(u64::from(*file))).ok_or(Argument::Mapping)?;
        let collector = *collectors.get(&(*file, *local)).unwrap_or(local);
        Ok(Grant {
            local_rank: *local,
            place: plan.place(*local)?,
            collector,
            collector_place: plan.place(collector)?,
            task_count: plan.header.task_count,
            file_count,
            fs_block_len: plan.header.fs_block_len,
            instance,
            by_root,
        })
    };
    let grants = root.owned.iter().map(|owned| owned.iter().map(grant).collect());
    let grants = grants.collect::<Result<_>>()?;
    Ok((root, grants))
}

/// Opens every physical file that `tasks` go to.
fn open_files<S: Storage>(
    storage: &S,
    path: &Path,
    tasks: &[NewTask],
) -> Result<BTreeMap<u32, S::File>> {
    let mut files = BTreeMap::new();
    for task in tasks {
        if let Entry::Vacant(slot) = files.entry(task.file) {
            slot.insert(open_to_create(storage, path, task.file)?);
        }
    }
    Ok(files)
}

/// True if rank 0 has described this `file`, where it does. A file of that name on the storage of
/// another node it has not: what is written there would be lost without a word.
fn is_described<F: File>(file: &F, grant: &Grant, options: &Options) -> bool {
    if !grant.by_root || grant.file_count == 1 || !options.journal {
        return true;
    }
    let mut flag2 = [0; 8];
    let read = read_up_to(file, &mut flag2, FLAG2_AT);
    read.is_ok() && options.order.u64(flag2) == Mark::Open(grant.instance).encode()
}

/// The first task of every merged task's group.
fn collectors(
    root: &Root,
    tasks: &[NewTask],
    options: &Options,
) -> Result<BTreeMap<(u32, u32), u32>> {
    let mut collectors = BTreeMap::new();
    if !matches!(options.packing, Packing::Merge { .. }) {
        return Ok(collectors);
    }
    for (number, plan) in (0u32..).zip(&root.plans) {
        let mut members: Vec<_> = tasks.iter().filter(|task| task.file == number).collect();
        members.sort_by_key(|task| task.local_rank);
        let requests: Vec<u64> = members.iter().map(|task| task.chunk_len).collect();
        let fs_block_len = u64::from(plan.header.fs_block_len);
        for group in options.packing.groups(&requests, fs_block_len, options.team)? {
            let first = u32::try_from(group.start).map_err(|_| Error::TooLarge)?;
            for member in members.get(group).unwrap_or_default() {
                collectors.insert((number, member.local_rank), first);
            }
        }
    }
    Ok(collectors)
}
