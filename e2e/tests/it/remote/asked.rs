//! A server's answers to questions about itself.

use std::process::Command;

use serde_json::Value;

use crate::{
    harness::{Folder, SOON, kakehi, succeed, wait_for},
    remote::server::{Scheme, Server},
};

#[test]
fn status_of_a_server_tells_where_it_listens_and_how_many_are_connected() {
    crate::views::needs_view!();
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let socket = folder.join(format!("kakehi/{}", server.running.child.id()));
    let ask = |mut command: Command, flags: &[&str]| {
        command.arg("status").args(flags).arg("--socket").arg(&socket);
        succeed(&mut command, SOON)
    };
    let serving = |command| {
        let status: Value = serde_json::from_str(&ask(command, &["--json"])).expect("JSON");
        status["serving"].clone()
    };
    let nobody = || serving(Command::new(kakehi()))["connections"] == 0;
    let address = format!("tcp://127.0.0.1:{}", server.port);
    assert_eq!(serving(Command::new(kakehi()))["address"], *address);
    assert!(nobody());
    let mut client = server.run(&folder);
    client.arg(kakehi());
    assert!(serving(client)["connections"].as_u64() > Some(0));
    assert!(wait_for(SOON, nobody), "its daemon has ended");
    let mut writer = server.run(&folder);
    writer.args(["sh", "-c", "head -c 100000 /dev/zero >\"$0\"/x"]).arg(folder.join("local"));
    succeed(&mut writer, SOON);
    let traffic = serving(Command::new(kakehi()));
    assert_eq!(traffic["bytes_written"], 100_000, "{traffic}");
    assert!(traffic["requests"].as_u64() > Some(2), "{traffic}");
    assert!(wait_for(SOON, nobody), "its daemon has ended");
    let text = ask(Command::new(kakehi()), &[]);
    assert!(text.contains(&format!("serves    {address}: 0 connections, ")), "{text}");
    server.end();
}
