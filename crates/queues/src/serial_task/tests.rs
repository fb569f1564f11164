//! Tests of serial tasks: order, panics, full mailboxes, and their end.

use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Waker};

use base::lock::LeafMutex;

use super::*;

type Log = Arc<LeafMutex<Vec<String>>>;

/// Polls its tasks once in each step.
#[derive(Default)]
struct SteppedTasks(LeafMutex<Vec<BoxFuture<'static, ()>>>);

impl Spawner for SteppedTasks {
    fn spawn(&self, _what: &'static str, task: BoxFuture<'static, ()>) {
        self.0.lock().push(task);
    }

    fn spawn_blocking(&self, _what: &'static str, job: Box<dyn FnOnce() + Send>) {
        job();
    }
}

impl SteppedTasks {
    fn step(&self) {
        let tasks = std::mem::take(&mut *self.0.lock());
        let mut cx = Context::from_waker(Waker::noop());
        let left: Vec<_> = tasks
            .into_iter()
            .filter_map(|mut t| t.as_mut().poll(&mut cx).is_pending().then_some(t))
            .collect();
        self.0.lock().splice(0..0, left);
    }

    fn run(&self) {
        (0..50).for_each(|_| self.step());
    }
}

/// State that logs what it handles.
struct LoggingState {
    log: Log,
    /// Numbers of messages that were handled together, if more than one.
    batches: Arc<LeafMutex<Vec<usize>>>,
    handled: usize,
    /// Completes the handling of messages that wait.
    released: Arc<AtomicUsize>,
    occupants: isize,
    /// Messages since the last completed batch.
    batch: usize,
}

enum Action {
    Log(&'static str),
    WaitThenLog(&'static str),
    Panic,
    PanicLater,
    Join,
    Leave,
}

impl SerialState for LoggingState {
    type Message = Action;

    fn handle(&mut self, message: Action) -> Option<BoxFuture<'_, ()>> {
        self.handled += 1;
        self.batch += 1;
        match message {
            Action::Log(text) => self.log.lock().push(format!("{text} {}", self.handled)),
            Action::WaitThenLog(text) => {
                return Some(Box::pin(async move {
                    poll_fn(|_| match self.released.load(Ordering::Relaxed) {
                        0 => Poll::Pending,
                        _ => Poll::Ready(()),
                    })
                    .await;
                    self.log.lock().push(format!("{text} {}", self.handled));
                }));
            }
            Action::Panic => panic!("a handler"),
            Action::PanicLater => return Some(Box::pin(async { panic!("a handler that waits") })),
            Action::Join => self.occupants += 1,
            Action::Leave => self.occupants -= 1,
        }
        None
    }

    fn complete_batch(&mut self) -> Option<BoxFuture<'_, ()>> {
        let count = std::mem::take(&mut self.batch);
        if count <= 1 {
            return None;
        }
        Some(Box::pin(async move { self.batches.lock().push(count) }))
    }

    fn is_idle(&self) -> bool {
        self.occupants == 0
    }
}

struct SerialBench {
    spawner: Arc<SteppedTasks>,
    tasks: Arc<SerialTasks<&'static str, LoggingState>>,
    log: Log,
    batches: Arc<LeafMutex<Vec<usize>>>,
    released: Arc<AtomicUsize>,
}

impl SerialBench {
    fn new(bytes_per_key: usize) -> SerialBench {
        let (log, released) = (Log::default(), Arc::<AtomicUsize>::default());
        let limits = KeyedQueueLimits { bytes_per_key, bytes: 1 << 20, forced_bytes: 0 };
        let batches = Arc::<LeafMutex<Vec<usize>>>::default();
        let (state_log, state_released, state_batches) = (log.clone(), released.clone(), batches.clone());
        let tasks = SerialTasks::new("room", limits, move |_: &&'static str| LoggingState {
            log: state_log.clone(),
            handled: 0,
            released: state_released.clone(),
            occupants: 0,
            batch: 0,
            batches: state_batches.clone(),
        });
        SerialBench { spawner: Arc::default(), tasks, log, batches, released }
    }

    fn send(&self, key: &'static str, action: Action) -> bool {
        self.tasks.try_send(&*self.spawner, &key, action, 10).is_ok()
    }

    fn log(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock())
    }
}

#[test]
fn messages_are_handled_in_order_also_when_one_waits_and_other_tasks_go_on() {
    let bench = SerialBench::new(1_000);
    assert!(bench.send("a", Action::Log("first")) && bench.send("a", Action::WaitThenLog("second")));
    assert!(bench.send("a", Action::Log("third")) && bench.send("b", Action::Log("other")));
    bench.spawner.run();
    assert_eq!(bench.log(), ["first 1", "other 1"]);
    assert_eq!(bench.tasks.len(), 1, "the other task has ended");
    bench.released.store(1, Ordering::Relaxed);
    bench.spawner.run();
    assert_eq!(bench.log(), ["second 2", "third 3"]);
    assert!(bench.tasks.is_empty() && bench.spawner.0.lock().is_empty());
}

#[test]
fn a_panic_ends_the_state_and_not_the_messages_after_it() {
    for action in [|| Action::Panic, || Action::PanicLater] {
        let bench = SerialBench::new(1_000);
        for action in [Action::Log("a"), action(), Action::Log("b"), Action::Log("c")] {
            assert!(bench.send("room", action));
        }
        bench.spawner.run();
        assert_eq!(bench.log(), ["a 1", "b 1", "c 2"]);
        assert_eq!((bench.tasks.panics(), bench.tasks.len()), (1, 0));
    }
}

#[test]
fn a_full_mailbox_refuses_and_a_source_that_waits_is_served_when_there_is_capacity() {
    let bench = SerialBench::new(30);
    for text in ["a", "b", "c"] {
        assert!(bench.send("room", Action::WaitThenLog(text)));
    }
    assert!(!bench.send("room", Action::Log("refused")) && bench.send("other", Action::Log("other")));
    let source = bench.tasks.clone().send(bench.spawner.clone(), "room", Action::Log("d"), 10);
    bench.spawner.spawn("source", Box::pin(source));
    bench.spawner.run();
    assert_eq!(bench.log(), ["other 1"]);
    bench.released.store(1, Ordering::Relaxed);
    bench.spawner.run();
    assert_eq!(bench.log(), ["a 1", "b 2", "c 3", "d 1"]);
    assert!(bench.tasks.is_empty());
}

#[test]
fn a_forced_message_enters_a_full_mailbox_in_its_order() {
    let bench = SerialBench::new(20);
    assert!(bench.send("room", Action::WaitThenLog("a")) && bench.send("room", Action::Log("b")));
    assert!(!bench.send("room", Action::Log("refused")));
    let forced = |text| bench.tasks.send_forced(&*bench.spawner, &"room", Action::Log(text), 10).is_ok();
    assert!(forced("c"), "it takes no capacity of the others");
    bench.released.store(1, Ordering::Relaxed);
    bench.spawner.run();
    assert_eq!(bench.log(), ["a 1", "b 2", "c 3"]);
    assert!(bench.tasks.is_empty());
}

#[test]
fn a_task_keeps_its_state_until_it_is_idle() {
    let bench = SerialBench::new(1_000);
    bench.send("room", Action::Join);
    bench.spawner.run();
    assert_eq!(bench.tasks.len(), 1);
    bench.send("room", Action::Log("inside"));
    bench.spawner.run();
    assert_eq!(bench.log(), ["inside 2"]);
    bench.send("room", Action::Leave);
    bench.spawner.run();
    assert!(bench.tasks.is_empty());
    bench.send("room", Action::Log("again"));
    bench.spawner.run();
    assert_eq!(bench.log(), ["again 1"]);
}

#[test]
fn a_task_that_is_dropped_leaves_no_mailbox() {
    let bench = SerialBench::new(1_000);
    bench.send("room", Action::WaitThenLog("never"));
    bench.send("room", Action::Log("never"));
    bench.spawner.step();
    let tasks = std::mem::take(&mut *bench.spawner.0.lock());
    drop(tasks);
    assert!(bench.tasks.is_empty());
    bench.send("room", Action::Log("later"));
    bench.spawner.run();
    assert_eq!(bench.log(), ["later 1"]);
}

#[test]
fn messages_that_wait_are_a_batch_which_is_complete_before_the_next_one_is_awaited() {
    let bench = SerialBench::new(10_000);
    bench.send("room", Action::Join);
    bench.send("room", Action::Log("a"));
    bench.send("room", Action::Log("b"));
    bench.spawner.run();
    assert_eq!((bench.log().len(), bench.batches.lock().clone()), (2, vec![3]));
    bench.send("room", Action::Log("alone"));
    bench.spawner.run();
    (0..YIELD_EVERY + 6).for_each(|_| assert!(bench.send("room", Action::Log("many"))));
    bench.spawner.run();
    let batches: Vec<usize> = bench.batches.lock().drain(..).skip(1).collect();
    assert_eq!(batches.iter().sum::<usize>(), YIELD_EVERY + 6);
    assert!(batches.len() >= 2 && batches.iter().all(|count| *count <= YIELD_EVERY), "{batches:?}");
}
