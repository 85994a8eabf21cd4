"""What the coordinator writes for others: offers, replicas; and the audits that derive it again."""
