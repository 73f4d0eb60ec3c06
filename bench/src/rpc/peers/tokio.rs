//! Tokio's way: files are for `spawn_blocking`.

use std::{os::unix::fs::FileExt as _, path::Path, rc::Rc, sync::Arc};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    runtime::Builder,
    task::{LocalSet, spawn_blocking, spawn_local},
};

use uring::set_window_min;

use super::{Shared, Spares};
use crate::{
    child::say,
    file::side::open,
    meter::Sample,
    rpc::packet::{NUMBER_LEN, Run},
};

pub(crate) fn serve(path: &Path, run: &Run) -> anyhow::Result<Sample> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    LocalSet::new().block_on(&runtime, serve_one(path, run))
}

async fn serve_one(path: &Path, run: &Run) -> anyhow::Result<Sample> {
    let file = Arc::new(open(path, true)?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    say(format!("tcp://{}", listener.local_addr()?))?;
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    set_window_min(&stream, run.window_len())?;
    let (mut reader, mut writer) = stream.into_split();
    let (shared, spares) = (Shared::new(run), Rc::new(Spares::default()));
    let answers = Rc::clone(&shared);
    let answering = spawn_local(async move {
        while let Some(answer) = answers.answer().await {
            writer.write_all(&answer).await?;
        }
        std::io::Result::Ok(())
    });
    for _ in 0..run.count {
        let mut offset = [0; NUMBER_LEN];
        reader.read_exact(&mut offset).await?;
        shared.meter.start();
        let (mut buffer, start) = spares.take(run.size);
        let range = start..start + run.size;
        reader.read_exact(buffer.get_mut(range.clone()).unwrap_or_default()).await?;
        let (shared, spares, file) = (Rc::clone(&shared), Rc::clone(&spares), Arc::clone(&file));
        spawn_local(async move {
            let write = spawn_blocking(move || {
                let data = buffer.get(range).unwrap_or_default();
                file.write_all_at(data, u64::from_le_bytes(offset)).map(|()| buffer)
            });
            if let Ok(Ok(buffer)) = write.await {
                spares.give_back(buffer);
                shared.serve();
            }
        });
    }
    answering.await??;
    Ok(shared.sample())
}
