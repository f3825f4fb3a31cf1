//! Groups of workers in Redis.

use ::redis::{Cmd, cmd};
use futures_util::{FutureExt, future::BoxFuture};

use super::{
    RedisStore, entries, group_reply, reply,
    script::{ATTEND, GROUP_COMMIT, GROUP_LEASE, GROUP_OPEN, GROUP_RELEASE, GROUP_SWEEP, GROUP_WISH},
    waiter::RedisWaiter,
};
use crate::{
    order::Entity,
    store::{
        Attendance, Commit, Committed, Granted, GroupId, GroupKeys, GroupStore, Head, KeptEvents, LeaseSeen,
        Leased, Member, PartitionId, Point, Read, RetiredPoints, Start, StoreError, StreamId, Switches,
        Waiter, Wish,
        keys::{PartitionKeys, groups_key, members_key},
    },
};

/// The field that every hash of a group has.
const SENTINEL: &str = "";

impl RedisStore {
    async fn register_group(
        &self,
        group: &GroupId,
        partitions: u32,
        start: Start,
    ) -> Result<bool, StoreError> {
        let start = match start {
            Start::Beginning => StreamId::default().to_string(),
            Start::End => "$".to_owned(),
            Start::After(id) => id.to_string(),
        };
        // The partitions first: a group that is known has all of them.
        for index in 0..partitions {
            let keys = keys_of(group, index);
            let of_script = [&keys.events, &keys.groups, &keys.lease, &keys.resume, &keys.held, &keys.kept];
            let mut call = GROUP_OPEN.call(&of_script.map(String::as_str), 2, 0);
            call.arg(&group.group).arg(&start);
            self.link.run(&GROUP_OPEN, call).await?;
        }
        let mut note = cmd("HSETNX");
        note.arg(groups_key(&group.topic)).arg(&group.group).arg(switches_text(Switches::default()));
        Ok(reply::number(self.query(note).await?)? == 1)
    }

    pub(super) async fn remove_group(&self, group: &GroupId, partitions: u32) -> Result<(), StoreError> {
        let mut forget = cmd("HDEL");
        forget.arg(groups_key(&group.topic)).arg(&group.group);
        self.query(forget).await?;
        let mut unlink = cmd("UNLINK");
        unlink.arg(members_key(&group.topic, &group.group));
        self.query(unlink).await?;
        for index in 0..partitions {
            let keys = keys_of(group, index);
            let mut unlink = cmd("UNLINK");
            unlink.arg(&[&keys.lease, &keys.resume, &keys.held, &keys.kept]);
            self.query(unlink).await?;
            let mut forget = cmd("HDEL");
            forget.arg(&keys.groups).arg(&group.group);
            self.query(forget).await?;
        }
        Ok(())
    }

    pub(super) async fn list_groups(&self, topic: &str) -> Result<Vec<(String, Switches)>, StoreError> {
        let mut query = cmd("HGETALL");
        query.arg(groups_key(topic));
        group_reply::groups(self.query(query).await?)
    }

    async fn switch_group(&self, group: &GroupId, switches: Switches) -> Result<bool, StoreError> {
        let key = groups_key(&group.topic);
        let mut is_there = cmd("HEXISTS");
        is_there.arg(&key).arg(&group.group);
        if reply::number(self.query(is_there).await?)? == 0 {
            return Ok(false);
        }
        let mut note = cmd("HSET");
        note.arg(key).arg(&group.group).arg(switches_text(switches));
        self.query(note).await.map(|_| true)
    }

    async fn attend_group(&self, group: &GroupId, member: &Member) -> Result<Option<Attendance>, StoreError> {
        let (groups, members) = (groups_key(&group.topic), members_key(&group.topic, &group.group));
        let mut call = ATTEND.call(&[&groups, &members], 3, 0);
        call.arg(&group.group).arg(&member.name).arg(member.count);
        group_reply::attendance(self.link.run(&ATTEND, call).await?)
    }

    async fn see_leases(&self, group: &GroupId, partitions: u32) -> Result<Vec<LeaseSeen>, StoreError> {
        let mut seen = Vec::new();
        let ask = |index| {
            let mut query = cmd("HMGET");
            query.arg(keys_of(group, index).lease).arg("owner").arg("term").arg("count");
            async move { self.query(query).await }
        };
        for reply in futures_util::future::join_all((0..partitions).map(ask)).await {
            match group_reply::lease_seen(reply?)? {
                Some(lease) => seen.push(lease),
                None => break,
            }
        }
        Ok(seen)
    }

    async fn take_lease(
        &self,
        partition: &PartitionId,
        group: &str,
        owner: &str,
        seen: &LeaseSeen,
    ) -> Result<Option<Leased>, StoreError> {
        let keys = GroupKeys::new(partition, group);
        let mut call = GROUP_LEASE.call(&[&keys.groups, &keys.lease], 5, 0);
        call.arg(group).arg(owner).arg(seen.owner.as_deref().unwrap_or_default());
        call.arg(seen.term).arg(seen.count);
        group_reply::leased(self.link.run(&GROUP_LEASE, call).await?)
    }

    async fn write_commit(
        &self,
        partition: &PartitionId,
        group: &str,
        commit: &Commit,
    ) -> Result<Committed, StoreError> {
        let call = encode_commit(&GroupKeys::new(partition, group), group, commit);
        group_reply::committed(self.link.run(&GROUP_COMMIT, call).await?)
    }

    async fn read_points(
        &self,
        partition: &PartitionId,
        group: &str,
        entities: &[Entity],
    ) -> Result<Vec<Option<Point>>, StoreError> {
        let mut query = cmd("HMGET");
        query.arg(GroupKeys::new(partition, group).resume).arg(SENTINEL);
        entities.iter().for_each(|entity| {
            query.arg(entity.as_str());
        });
        group_reply::points(group, self.query(query).await?)
    }

    async fn read_heads(
        &self,
        partition: &PartitionId,
        group: &str,
    ) -> Result<Vec<(Entity, Head)>, StoreError> {
        let mut query = cmd("HGETALL");
        query.arg(GroupKeys::new(partition, group).held);
        group_reply::heads(group, self.query(query).await?)
    }

    async fn read_kept(
        &self,
        partition: &PartitionId,
        group: &str,
        entity: &Entity,
        numbers: std::ops::Range<u64>,
    ) -> Result<KeptEvents, StoreError> {
        let numbers: Vec<u64> = numbers.collect();
        let mut query = cmd("HMGET");
        query.arg(GroupKeys::new(partition, group).kept).arg(SENTINEL);
        numbers.iter().for_each(|number| {
            query.arg(GroupKeys::kept_field(entity, *number));
        });
        group_reply::kept(group, numbers, self.query(query).await?)
    }

    async fn note_wish(
        &self,
        partition: &PartitionId,
        group: &str,
        entity: &Entity,
        wish: Wish,
    ) -> Result<Granted, StoreError> {
        let (wished, fits) = wish.changes();
        let keys = GroupKeys::new(partition, group);
        let mut call = GROUP_WISH.call(&[&keys.lease, &keys.held], 4, 0);
        call.arg(entity.as_str()).arg(wished.letter().to_string());
        call.arg(fits.iter().map(|state| state.letter()).collect::<String>());
        call.arg(if wish == Wish::Pause { Head::paused().to_string() } else { String::new() });
        group_reply::granted(self.link.run(&GROUP_WISH, call).await?)
    }

    async fn read_raw(
        &self,
        partition: &PartitionId,
        after: StreamId,
        count: usize,
    ) -> Result<Vec<Read>, StoreError> {
        entries::reads(self.range(&PartitionKeys::new(partition).events, after, count).await?)
    }
}

fn keys_of(group: &GroupId, index: u32) -> GroupKeys {
    GroupKeys::new(&PartitionId { topic: group.topic.as_str().into(), index }, &group.group)
}

fn switches_text(switches: Switches) -> String {
    let letter = |on: bool, letter: &str| if on { letter.to_owned() } else { String::new() };
    letter(switches.paused, "p") + &letter(switches.degraded, "x")
}

fn encode_commit(keys: &GroupKeys, group: &str, commit: &Commit) -> Cmd {
    fn joined<T: ToString>(items: &[T]) -> String {
        items.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }
    let of_script = [&keys.groups, &keys.lease, &keys.resume, &keys.held, &keys.kept];
    let words =
        2 * commit.points.len() + 4 * commit.heads.len() + 2 * commit.kept.len() + commit.dropped.len();
    let bytes = commit.kept.iter().map(|(_, _, event)| event.len()).sum();
    let mut call = GROUP_COMMIT.call(&of_script.map(String::as_str), 10 + words, bytes);
    call.arg(group).arg(commit.term).arg(commit.floor.to_string());
    call.arg(joined(&commit.running)).arg(joined(&commit.loose)).arg(commit.number);
    call.arg(2 * commit.points.len());
    for (entity, point) in &commit.points {
        call.arg(entity.as_str()).arg(point.to_string());
    }
    call.arg(4 * commit.heads.len());
    for change in &commit.heads {
        call.arg(change.entity.as_str());
        call.arg(change.was.map(|state| state.letter().to_string()).unwrap_or_default());
        call.arg(change.head.to_string()).arg(u8::from(change.ends));
    }
    call.arg(2 * commit.kept.len());
    for (entity, number, event) in &commit.kept {
        call.arg(GroupKeys::kept_field(entity, *number)).arg(event);
    }
    call.arg(commit.dropped.len());
    for (entity, number) in &commit.dropped {
        call.arg(GroupKeys::kept_field(entity, *number));
    }
    call
}

impl GroupStore for RedisStore {
    fn register<'a>(
        &'a self,
        group: &'a GroupId,
        partitions: u32,
        start: Start,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        self.register_group(group, partitions, start).boxed()
    }

    fn remove<'a>(&'a self, group: &'a GroupId, partitions: u32) -> BoxFuture<'a, Result<(), StoreError>> {
        self.remove_group(group, partitions).boxed()
    }

    fn groups<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<Vec<(String, Switches)>, StoreError>> {
        self.list_groups(topic).boxed()
    }

    fn switch<'a>(
        &'a self,
        group: &'a GroupId,
        switches: Switches,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        self.switch_group(group, switches).boxed()
    }

    fn attend<'a>(
        &'a self,
        group: &'a GroupId,
        member: &'a Member,
    ) -> BoxFuture<'a, Result<Option<Attendance>, StoreError>> {
        self.attend_group(group, member).boxed()
    }

    fn depart<'a>(&'a self, group: &'a GroupId, member: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        async move {
            let mut forget = cmd("HDEL");
            forget.arg(members_key(&group.topic, &group.group)).arg(member);
            self.query(forget).await.map(drop)
        }
        .boxed()
    }

    fn leases<'a>(
        &'a self,
        group: &'a GroupId,
        partitions: u32,
    ) -> BoxFuture<'a, Result<Vec<LeaseSeen>, StoreError>> {
        self.see_leases(group, partitions).boxed()
    }

    fn lease<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        owner: &'a str,
        seen: &'a LeaseSeen,
    ) -> BoxFuture<'a, Result<Option<Leased>, StoreError>> {
        self.take_lease(partition, group, owner, seen).boxed()
    }

    fn release<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        term: u64,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        async move {
            let keys = GroupKeys::new(partition, group);
            let mut call = GROUP_RELEASE.call(&[&keys.lease], 1, 0);
            call.arg(term);
            self.link.run(&GROUP_RELEASE, call).await.map(drop)
        }
        .boxed()
    }

    fn commit<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        commit: &'a Commit,
    ) -> BoxFuture<'a, Result<Committed, StoreError>> {
        self.write_commit(partition, group, commit).boxed()
    }

    fn points<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        entities: &'a [Entity],
    ) -> BoxFuture<'a, Result<Vec<Option<Point>>, StoreError>> {
        self.read_points(partition, group, entities).boxed()
    }

    fn sweep_points<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        term: u64,
        found: &'a RetiredPoints,
        count: usize,
    ) -> BoxFuture<'a, Result<Option<RetiredPoints>, StoreError>> {
        async move {
            let (keys, of_partition) = (GroupKeys::new(partition, group), PartitionKeys::new(partition));
            let mut of_script: Vec<&str> = vec![&keys.groups, &keys.lease, &keys.resume, &keys.held];
            of_script.extend([of_partition.lanes.as_str(), of_partition.events.as_str()]);
            of_script.extend(of_partition.tombs.iter().map(String::as_str));
            let mut call = GROUP_SWEEP.call(&of_script, 5 + 2 * found.points.len(), 0);
            call.arg(group).arg(term).arg(found.cursor).arg(count).arg(found.upto.to_string());
            for (entity, point) in &found.points {
                call.arg(entity).arg(point);
            }
            group_reply::retired_points(self.link.run(&GROUP_SWEEP, call).await?)
        }
        .boxed()
    }

    fn heads<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
    ) -> BoxFuture<'a, Result<Vec<(Entity, Head)>, StoreError>> {
        self.read_heads(partition, group).boxed()
    }

    fn kept<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        entity: &'a Entity,
        numbers: std::ops::Range<u64>,
    ) -> BoxFuture<'a, Result<KeptEvents, StoreError>> {
        self.read_kept(partition, group, entity, numbers).boxed()
    }

    fn wish<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        entity: &'a Entity,
        wish: Wish,
    ) -> BoxFuture<'a, Result<Granted, StoreError>> {
        self.note_wish(partition, group, entity, wish).boxed()
    }

    fn read_on<'a>(
        &'a self,
        partition: &'a PartitionId,
        after: StreamId,
        count: usize,
    ) -> BoxFuture<'a, Result<Vec<Read>, StoreError>> {
        self.read_raw(partition, after, count).boxed()
    }

    fn waiter(&self) -> Box<dyn Waiter> {
        Box::new(RedisWaiter { link: self.link.clone(), connection: None })
    }
}
