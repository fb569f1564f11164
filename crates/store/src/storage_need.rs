//! The macro that declares a storage need. From the declaration follow the trait and its part of [`crate::observed`], the
//! wrapper by which operations are measured and tests count them.
//!
//! A need is a file of this crate with the declaration, and a line in `storage_needs!` of `lib.rs`. That line makes the
//! field of [`crate::Stores`] and requires the conformance cases of the same file name.
//!
//! # Pitfalls
//!
//! rustfmt does not format the declaration.

/// Declares a storage need: a trait and, after `in`, its field in [`crate::Stores`].
///
/// A method returns a [`crate::StoreFuture`]; one after `queue` returns nothing, because its write is only queued.
macro_rules! storage_need {
    (
        $(#[$need_doc:meta])*
        pub trait $need:ident in $field:ident {
            $(
                $(#[$doc:meta])*
                fn $method:ident(&self $(, $name:ident: $type:ty)*) -> StoreFuture<'_, $out:ty>;
            )*
        }
        $(queue {
            $(
                $(#[$queue_doc:meta])*
                fn $queue:ident(&self $(, $queue_name:ident: $queue_type:ty)*);
            )*
        })?
    ) => {
        $(#[$need_doc])*
        pub trait $need: Send + Sync {
            $(
                $(#[$doc])*
                fn $method(&self $(, $name: $type)*) -> StoreFuture<'_, $out>;
            )*
            $($(
                $(#[$queue_doc])*
                fn $queue(&self $(, $queue_name: $queue_type)*);
            )*)?
        }

        /// Operations that are measured, as field and method.
        pub(crate) const OPERATIONS: &[&str] = &[$(concat!(stringify!($field), ".", stringify!($method))),*];

        impl<O: crate::observed::StoreObserver> $need for crate::observed::ObservedStores<O> {
            $(
                fn $method(&self $(, $name: $type)*) -> StoreFuture<'_, $out> {
                    let operation = concat!(stringify!($field), ".", stringify!($method));
                    self.observer.call(operation, || self.inner.$field.$method($($name),*))
                }
            )*
            $($(
                fn $queue(&self $(, $queue_name: $queue_type)*) {
                    self.observer.queue(concat!(stringify!($field), ".", stringify!($queue)));
                    self.inner.$field.$queue($($queue_name),*);
                }
            )*)?
        }
    };
}
