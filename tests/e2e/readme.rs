//! The README's promises: its commands, run as they stand, print what it pastes.

use std::{fs, path::Path, process::Command};

use super::{sidecar::Sidecar, support::redis_server};

fn readme() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap()
}

/// The lines of all fenced blocks, block by block.
fn blocks(text: &str) -> Vec<Vec<&str>> {
    text.split("```").skip(1).step_by(2).map(|block| block.trim_matches('\n').lines().collect()).collect()
}

/// Commands that begin with `$ `, each with the lines that it prints.
fn sessions(text: &str) -> Vec<(String, String)> {
    let mut sessions: Vec<(String, String)> = Vec::new();
    for block in blocks(text).into_iter().filter(|block| block[0].starts_with("$ ")) {
        for line in block {
            match line.strip_prefix("$ ") {
                Some(command) => sessions.push((command.to_owned(), String::new())),
                None => sessions.last_mut().unwrap().1.extend([line, "\n"]),
            }
        }
    }
    sessions
}

#[test]
fn the_first_two_commands_are_the_demo_and_the_tests() {
    let readme = readme();
    let commands: Vec<&str> = blocks(&readme)
        .into_iter()
        .filter(|block| block.len() == 1)
        .map(|block| block[0])
        .filter(|line| line.starts_with("cargo") || line.starts_with("make") || line.starts_with("seriatim"))
        .collect();
    assert_eq!(commands[..2], ["cargo run --release -- demo", "make test"]);
}

#[tokio::test]
async fn what_it_shows_of_a_session_is_what_happens() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), "[topics.evaluations]\nterminal_types = [\"completed\"]\n");
    let folder = redis.socket().parent().unwrap().to_owned();
    let mut shown = 0;
    for (command, printed) in sessions(&readme()) {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words[..] {
            ["cat", file] => {
                fs::write(folder.join(file), printed).unwrap();
                continue;
            }
            ["seriatim", "publish", ..] => {
                let to = format!("http://{}", sidecar.grpc);
                assert_eq!(run(&folder, &words[1..], &["--to", &to]), printed);
            }
            ["seriatim", "verify"] => {
                assert_eq!(run(&folder, &words[1..], &["--redis", &redis.url()]), printed);
            }
            ["redis-cli", "XRANGE", key, from, to] => {
                let output = Command::new("redis-cli")
                    .arg("-s")
                    .arg(redis.socket())
                    .args(["--no-raw", "XRANGE", key.trim_matches('\''), from, to])
                    .output()
                    .unwrap();
                let output = String::from_utf8(output.stdout).unwrap();
                let pasted = printed.trim_end().trim_end_matches("...");
                assert!(
                    without_ids(&output).starts_with(&without_ids(pasted)),
                    "{output}\nREADME:\n{pasted}"
                );
            }
            // A worker's command stands in the file store-event.
            ["seriatim", "consume" | "dead", ..] => {
                fs::write(folder.join("store-event"), "#!/bin/sh\ncat >/dev/null\n").unwrap();
                let output = Command::new("sh")
                    .args(["-c", &format!("chmod +x store-event; {command}")])
                    .current_dir(&folder)
                    .env("PATH", path_with_binary())
                    .env("SERIATIM__STORE__URL", redis.url())
                    .output()
                    .unwrap();
                assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
                let output = String::from_utf8(output.stdout).unwrap();
                assert_eq!(without_long_numbers(&output), without_long_numbers(&printed), "{command}");
            }
            _ => panic!("the README shows a command that this test does not know: {command}"),
        }
        shown += 1;
    }
    assert_eq!(shown, 9, "publish, XRANGE, verify, consume and dead are shown");
}

fn run(folder: &Path, words: &[&str], more: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
    let output = command.args(words).args(more).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Entry ids are made of the time: lines with one are compared without it.
fn without_ids(text: &str) -> String {
    let is_id = |line: &&str| !line.contains("1) 1) \"") && !line.starts_with("2) 1) \"");
    text.lines().filter(is_id).collect::<Vec<_>>().join("\n")
}

/// The numbers of the demo's pasted output add up, so that nobody edits them by hand.
#[test]
fn the_pasted_demo_is_consistent() {
    let readme = readme();
    let row = |name: &str| -> Vec<u64> {
        let line = readme.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].split_whitespace().map(|cell| cell.replace(',', "").parse().unwrap()).collect()
    };
    let (events, duplicates, lost) = (row("events  "), row("duplicates  "), row("lost on the way"));
    assert_eq!(events[0] - duplicates[0] + lost[0] - lost[1], events[1]);
    assert_eq!(events[1], 3000);
    assert_eq!((row("refused transitions")[1], row("evaluations stuck for ever")[1]), (0, 0));
}

/// The program under test, where a shell finds it.
fn path_with_binary() -> String {
    let folder = Path::new(env!("CARGO_BIN_EXE_seriatim")).parent().unwrap();
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

/// Ids and terms come from the clock.
fn without_long_numbers(text: &str) -> String {
    let mut shown = String::new();
    for part in text.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = part.chars().take_while(char::is_ascii_digit).count();
        shown.push_str(if digits >= 10 { &part[digits..] } else { part });
    }
    shown
}
