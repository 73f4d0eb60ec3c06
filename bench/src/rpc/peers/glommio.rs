//! The thesis's way: a task per packet, and from time to time all are awaited before more are taken
//! in.

use std::{
    os::fd::{AsRawFd as _, BorrowedFd},
    path::Path,
    rc::Rc,
};

use anyhow::anyhow;
use futures_lite::{AsyncReadExt as _, AsyncWriteExt as _};
use glommio::{LocalExecutorBuilder, io::OpenOptions, net::TcpListener, spawn_local};
use uring::set_window_min;

use super::Shared;
use crate::{
    child::say,
    meter::Sample,
    rpc::packet::{NUMBER_LEN, Run},
};

/// Tasks that are awaited together.
const BARRIER: usize = 8192;

pub(crate) fn serve(path: &Path, run: &Run) -> anyhow::Result<Sample> {
    let (path, run) = (path.to_owned(), run.clone());
    let executor = LocalExecutorBuilder::default().make().map_err(|why| anyhow!("{why}"))?;
    executor
        .run(async move { serve_one(&path, &run).await.map_err(|why| anyhow!("glommio: {why}")) })
}

async fn serve_one(path: &Path, run: &Run) -> anyhow::Result<Sample> {
    let text = |why: glommio::GlommioError<()>| anyhow!("{why}");
    let file = Rc::new(OpenOptions::new().write(true).dma_open(path).await.map_err(text)?);
    let listener = TcpListener::bind("127.0.0.1:0").map_err(text)?;
    say(format!("tcp://{}", listener.local_addr().map_err(text)?))?;
    let stream = listener.accept().await.map_err(text)?;
    stream.set_nodelay(true).map_err(text)?;
    // SAFETY: the stream lives through the call.
    let fd = unsafe { BorrowedFd::borrow_raw(stream.as_raw_fd()) };
    set_window_min(fd, run.window_len())?;
    let (mut reader, mut writer) = futures_lite::io::split(stream);
    let shared = Shared::new(run);
    let answers = Rc::clone(&shared);
    let answering = spawn_local(async move {
        while let Some(answer) = answers.answer().await {
            writer.write_all(&answer).await?;
        }
        std::io::Result::Ok(())
    });
    let mut tasks = Vec::new();
    for _ in 0..run.count {
        let mut offset = [0; NUMBER_LEN];
        reader.read_exact(&mut offset).await?;
        shared.meter.start();
        let mut buffer = file.alloc_dma_buffer(run.size);
        reader.read_exact(buffer.as_bytes_mut()).await?;
        let (shared, file) = (Rc::clone(&shared), Rc::clone(&file));
        tasks.push(spawn_local(async move {
            if file.write_at(buffer, u64::from_le_bytes(offset)).await.is_ok() {
                shared.serve();
            }
        }));
        if tasks.len() == BARRIER {
            for task in tasks.drain(..) {
                task.await;
            }
        }
    }
    for task in tasks {
        task.await;
    }
    answering.await?;
    Ok(shared.sample())
}
