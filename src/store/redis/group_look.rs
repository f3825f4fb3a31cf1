//! Looking at groups, and removing plain ones: for people, without any promise of speed.

use ::redis::{Value, cmd};

use super::{RedisStore, group_reply, reply};
use crate::store::{
    GroupId, GroupKeys, GroupMeasure, GroupStore, HoldState, PartitionId, StoreError, StreamId, Switches,
    keys::members_key,
};

impl RedisStore {
    /// All groups that read a topic, also those that somebody made with XGROUP.
    pub async fn measure_groups(
        &self,
        topic: &str,
        partitions: u32,
    ) -> Result<Vec<GroupMeasure>, StoreError> {
        let mut found = Vec::new();
        for (group, switches) in GroupStore::groups(self, topic).await? {
            found.push(self.measure_group(topic, &group, switches, partitions).await?);
        }
        for index in 0..partitions {
            let id = PartitionId { topic: topic.into(), index };
            let last = self.last_id(&id).await?;
            for (group, delivered) in self.plain_groups(&id).await? {
                let behind_ms = last.milliseconds.saturating_sub(delivered.milliseconds);
                match found.iter_mut().find(|known| known.group == group) {
                    Some(known) if !known.registered => known.behind_ms = known.behind_ms.max(behind_ms),
                    Some(_) => {}
                    None => found.push(GroupMeasure {
                        group,
                        registered: false,
                        switches: Switches::default(),
                        members: None,
                        behind_ms,
                        held: None,
                        dead: None,
                    }),
                }
            }
        }
        Ok(found)
    }

    async fn measure_group(
        &self,
        topic: &str,
        group: &str,
        switches: Switches,
        partitions: u32,
    ) -> Result<GroupMeasure, StoreError> {
        let mut members = cmd("HLEN");
        members.arg(members_key(topic, group));
        let members = Some(reply::number(self.query(members).await?)?);
        let (mut behind_ms, mut held, mut dead) = (0, 0, 0);
        for index in 0..partitions {
            let id = PartitionId { topic: topic.into(), index };
            let mut floor = cmd("HGET");
            floor.arg(GroupKeys::new(&id, group).groups).arg(group);
            let floor: StreamId = match self.query(floor).await? {
                Value::Nil => continue,
                text => reply::parsed(reply::text(text)?)?,
            };
            let last = self.last_id(&id).await?;
            if last > floor {
                behind_ms = behind_ms.max(last.milliseconds.saturating_sub(floor.milliseconds).max(1));
            }
            for (_, head) in GroupStore::heads(self, &id, group).await? {
                held += 1;
                dead += u64::from(head.state == HoldState::Dead);
            }
        }
        let group = group.to_owned();
        let (held, dead) = (Some(held), Some(dead));
        Ok(GroupMeasure { group, registered: true, switches, members, behind_ms, held, dead })
    }

    pub async fn remove_plain_group(&self, group: &GroupId, partitions: u32) -> Result<(), StoreError> {
        for index in 0..partitions {
            let id = PartitionId { topic: group.topic.as_str().into(), index };
            let mut destroy = cmd("XGROUP");
            destroy.arg("DESTROY").arg(self.keys(&id).events).arg(&group.group);
            self.query(destroy).await?;
        }
        Ok(())
    }

    async fn last_id(&self, partition: &PartitionId) -> Result<StreamId, StoreError> {
        let mut info = cmd("XINFO");
        info.arg("STREAM").arg(self.keys(partition).events);
        group_reply::last_id(self.query(info).await?)
    }

    /// Their names, and the last entry that each was given.
    async fn plain_groups(&self, partition: &PartitionId) -> Result<Vec<(String, StreamId)>, StoreError> {
        let mut info = cmd("XINFO");
        info.arg("GROUPS").arg(self.keys(partition).events);
        group_reply::plain_groups(self.query(info).await?)
    }
}
