//! Every file of SIONlib reads back to what its manifest says.

use multifile::{
    Argument, Disk, Error, Reader, TaskReader, codec::Order, header::Keyval, keyval::Records,
};
use serde_json::Value;

use crate::golden::{Golden, list, sha256, text};

/// Format rules 1.2, 5.1 and 6.1.
#[test]
fn every_golden_file_reads_back_to_its_manifest() {
    let golden = Golden::unpack();
    for case in &golden.cases {
        let path = golden.path(&case["file"]);
        let opened = Reader::open(&Disk::new(), &path);
        if case["closed"] == false {
            assert!(matches!(opened, Err(Error::Unclosed { file: 0 })), "{}", case["name"]);
            continue;
        }
        let reader = opened.unwrap_or_else(|error| panic!("{}: {error}", case["name"]));
        check_headers(case, &reader);
        let tasks = case["tasks"].as_array().unwrap();
        assert_eq!(reader.task_count(), tasks.len(), "{}", case["name"]);
        for (index, expected) in tasks.iter().enumerate() {
            let task = reader.task(index).unwrap();
            let label = format!("{} task {index}", case["name"]);
            assert_eq!(expected["file"], task.file, "{label}");
            assert_eq!(expected["lrank"], task.local_rank, "{label}");
            assert_eq!(expected["globalrank"], task.global_rank, "{label}");
            let stored = expected["chunksize"].as_u64().unwrap();
            let header = reader.header(task.file as usize).unwrap();
            // Up to version 3 a file says what was asked for.
            let up_to = if header.version < 4 { u64::from(header.fs_block_len) } else { 1 };
            assert_eq!(stored.next_multiple_of(up_to), task.chunk_len, "{label}");
            let lens = list(&expected["blocks"], |len| len.as_u64().unwrap());
            assert_eq!(reader.block_lens(index).unwrap(), lens, "{label}");
            check_stream(expected, reader.stream(index).unwrap(), order(&reader), &label);
            let rank = u32::try_from(index).unwrap();
            let (stream, header, same) = TaskReader::open(&Disk::new(), &path, rank).unwrap();
            assert_eq!(same, task, "{label}");
            check_stream(expected, stream, header.order, &label);
        }
        let beyond = u32::try_from(tasks.len()).unwrap();
        let missing = TaskReader::open(&Disk::new(), &path, beyond).err();
        assert_eq!(missing, Some(Argument::Task.into()), "{}", case["name"]);
    }
}

fn order(reader: &Reader<std::fs::File>) -> Order {
    reader.header(0).unwrap().order
}

fn check_headers(case: &Value, reader: &Reader<std::fs::File>) {
    for (index, file) in case["files"].as_array().unwrap().iter().enumerate() {
        let expected = &file["header"];
        let Some(header) = reader.header(index) else {
            assert!(text(&file["name"]).contains("_BUDDY_"));
            continue;
        };
        let layout = reader.layout(index).unwrap();
        let name = |order| if order == Order::Big { "big" } else { "little" };
        assert_eq!(expected["meta"], name(header.order));
        assert_eq!(expected["data"], name(header.data_order));
        assert_eq!(expected["lib"], header.library_version);
        assert_eq!(expected["patch"], header.library_patch);
        assert_eq!(expected["version"], header.version);
        assert_eq!(expected["fsblksize"], header.fs_block_len);
        assert_eq!(expected["ntasks"], header.task_count);
        assert_eq!(expected["nfiles"], header.file_count);
        assert_eq!(expected["filenumber"], header.file_number);
        assert_eq!(expected["keyval"] == "inline", header.keyval == Keyval::Inline);
        assert_eq!(text(&expected["prefix"]).as_bytes(), header.prefix);
        assert_eq!(expected["start_of_data"], layout.data_at());
        assert_eq!(expected["globalskip"], layout.skip());
        assert_eq!(expected["start_of_varheader"], reader.table(index).unwrap().at);
        assert_eq!(expected["maxchunks"], reader.table(index).unwrap().block_count);
    }
}

fn check_stream(expected: &Value, stream: TaskReader<std::fs::File>, order: Order, label: &str) {
    assert_eq!(expected["raw_bytes"], stream.cursor().total(), "{label}");
    let mut bytes = Vec::new();
    if expected["kv"].is_null() {
        std::io::Read::read_to_end(&mut { stream }, &mut bytes).unwrap();
    } else {
        let mut records = Records::scan(stream, order).unwrap();
        let kv = expected["kv"].as_array().unwrap();
        assert_eq!(records.records().len(), kv.len(), "{label}");
        for (index, record) in kv.iter().enumerate() {
            let found = records.select(index).unwrap();
            let mut data = vec![0; usize::try_from(found.len).unwrap()];
            assert_eq!(records.read(found.key, &mut data), Ok(data.len()), "{label}");
            assert_eq!(record["key"], found.key, "{label}");
            assert_eq!(record["len"], found.len, "{label}");
            assert_eq!(record["sha256"], sha256(&data), "{label}");
            bytes.extend(data);
        }
    }
    assert_eq!(expected["bytes"], bytes.len(), "{label}");
    assert_eq!(expected["sha256"], sha256(&bytes), "{label}");
}
