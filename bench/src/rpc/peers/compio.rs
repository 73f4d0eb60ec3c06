//! Compio's way: io_uring for network and file, a task per packet.

use std::{path::Path, rc::Rc};

use compio::{
    BufResult,
    buf::{IntoInner as _, IoBuf as _},
    fs::OpenOptions,
    io::{AsyncReadExt as _, AsyncWriteAtExt as _, AsyncWriteExt as _},
    net::TcpListener,
    runtime::{Runtime, spawn},
};

use uring::set_window_min;

use super::{Shared, Spares};
use crate::{
    child::say,
    meter::Sample,
    rpc::packet::{NUMBER_LEN, Run},
};

pub(crate) fn serve(path: &Path, run: &Run) -> anyhow::Result<Sample> {
    Runtime::new()?.block_on(serve_one(path, run))
}

async fn serve_one(path: &Path, run: &Run) -> anyhow::Result<Sample> {
    let file = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    say(format!("tcp://{}", listener.local_addr()?))?;
    let (mut stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    set_window_min(&stream, run.window_len())?;
    let mut writer = stream.clone();
    let (shared, spares) = (Shared::new(run), Rc::new(Spares::default()));
    let answers = Rc::clone(&shared);
    let answering = spawn(async move {
        while let Some(answer) = answers.answer().await {
            writer.write_all(answer).await.0?;
        }
        std::io::Result::Ok(())
    });
    let mut offset = [0; NUMBER_LEN];
    for _ in 0..run.count {
        let BufResult(result, filled) = stream.read_exact(offset).await;
        result?;
        offset = filled;
        shared.meter.start();
        let (buffer, start) = spares.take(run.size);
        let BufResult(result, buffer) =
            stream.read_exact(buffer.slice(start..start + run.size)).await;
        result?;
        let (shared, spares, mut file) = (Rc::clone(&shared), Rc::clone(&spares), file.clone());
        spawn(async move {
            let at = u64::from_le_bytes(offset);
            let BufResult(result, buffer) = file.write_all_at(buffer, at).await;
            if result.is_ok() {
                spares.give_back(buffer.into_inner());
                shared.serve();
            }
        })
        .detach();
    }
    answering.await.map_err(|_| anyhow::anyhow!("a task failed"))??;
    Ok(shared.sample())
}
