//! Tests of the container file without a build of the image, which needs images of a registry.

use std::collections::BTreeSet;

use throng_e2e::{TempFolder, program};

use crate::{assert_valid, output_of, read, root};

/// Instructions with their arguments; continued lines are joined.
fn instructions() -> Vec<(String, String)> {
    let text = read("contrib/container/Containerfile").replace("\\\n", " ");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(' ')).map(|(what, rest)| (what.into(), rest.into())).collect()
}

#[test]
fn the_image_runs_as_a_user_without_rights_and_copies_files_that_exist() {
    let all = instructions();
    let last_stage: Vec<_> = all.iter().rev().take_while(|(what, _)| what != "FROM").collect();
    let argument = |name: &str| {
        let found = last_stage.iter().find(|(what, _)| what == name);
        found.map(|(_, rest)| rest.as_str()).unwrap_or_else(|| panic!("no {name} in the last stage"))
    };
    assert_eq!(argument("USER"), "10001:10001");
    assert_eq!(argument("STOPSIGNAL"), "SIGTERM");
    let stages: BTreeSet<&str> = all
        .iter()
        .filter(|(what, _)| what == "FROM")
        .filter_map(|(_, rest)| Some(rest.split_once(" AS ")?.1))
        .collect();
    for (_, rest) in all.iter().filter(|(what, _)| what == "COPY") {
        match rest.strip_prefix("--from=").and_then(|rest| rest.split_once(' ')) {
            Some((stage, _)) => assert!(stages.contains(stage), "no stage {stage}"),
            None => {
                let source = rest.split(' ').next().expect("a source");
                assert!(root().join(source).exists(), "{source} is not there");
            }
        }
    }
}

#[test]
fn its_commands_are_those_of_the_program_and_its_configuration_is_valid() {
    for name in ["CMD", "HEALTHCHECK"] {
        let all = instructions();
        let (_, rest) = all.iter().find(|(what, _)| what == name).expect("the instruction");
        let words: Vec<String> =
            serde_json::from_str(&rest[rest.find('[').expect("a list")..]).expect("a list of words");
        let words: Vec<&str> = words.iter().map(String::as_str).filter(|word| *word != "throng").collect();
        // The usage is the same; only the file does not exist here.
        let described = output_of(&mut program(None, &[words[0], "--help"]));
        for flag in words.iter().filter(|word| word.starts_with("--")) {
            assert!(described.contains(flag), "{words:?}");
        }
    }
    let folder = TempFolder::new("container");
    assert_valid(&read("contrib/container/throng.toml"), &folder, &[]);
}
