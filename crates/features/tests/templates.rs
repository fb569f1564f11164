//! Builds the files that `cargo xtask new-feature` copies and runs their tests, so that they stay up to date with the
//! API.
#![allow(unreachable_pub, reason = "the templates are modules of a library once they are copied")]

#[path = "../templates/message.rs"]
mod message;
#[path = "../templates/request.rs"]
mod request;
#[path = "../templates/service.rs"]
mod service;
#[path = "../templates/storage.rs"]
mod storage;

#[test]
fn the_templates_are_features_of_the_same_name() {
    let names = [message::FEATURE.name, request::FEATURE.name, service::FEATURE.name, storage::FEATURE.name];
    assert_eq!(names, ["example_feature"; 4]);
}
